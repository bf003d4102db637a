"""A user's folder is searched for photos: by name or first bytes, in one order, hidden things left alone."""

from pathlib import Path

import pytest

from tasks.errors import ProjectError
from tasks.photo_folder import find_photos

JPEG = b"\xff\xd8\xff\xe0"


def fill(folder: Path, **contents: bytes) -> None:
    """Write files; ``__`` in a name is a folder, ``_`` before the suffix is the dot."""
    for name, content in contents.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = folder / (f"{stem}.{suffix}" if stem else suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def names(folder: Path) -> list[str]:
    """Return the names of the photos found."""
    return [source.name for source in find_photos(folder)]


def test_photos_are_sorted_by_their_path_below_the_folder(tmp_path: Path) -> None:
    """The order is the machine's business nowhere else."""
    fill(tmp_path, b_jpg=JPEG, a__c_jpg=JPEG, a__b_jpg=JPEG)

    assert names(tmp_path) == ["a/b.jpg", "a/c.jpg", "b.jpg"]


def test_a_source_names_its_file_absolutely(tmp_path: Path) -> None:
    """A worker may run elsewhere."""
    fill(tmp_path, a_jpg=JPEG)

    (source,) = find_photos(tmp_path)
    assert source.path == str((tmp_path / "a.jpg").resolve())


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "png", "TIF", "webp", "bmp", "heic", "nef", "dng"])
def test_a_file_with_a_photos_suffix_counts_whatever_is_in_it(tmp_path: Path, suffix: str) -> None:
    """A broken photo is told at import; silently leaving it out would be worse."""
    (tmp_path / f"a.{suffix}").write_bytes(b"")

    assert names(tmp_path) == [f"a.{suffix}"]


@pytest.mark.parametrize("start", [JPEG, b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*"])
def test_a_file_that_begins_like_a_photo_counts_whatever_its_name(tmp_path: Path, start: bytes) -> None:
    """Cameras and archives lose suffixes."""
    (tmp_path / "scan-17").write_bytes(start + b"...")

    assert names(tmp_path) == ["scan-17"]


@pytest.mark.parametrize("start", [b"", b"\xff\xd8", b"\x89PNG", b"II*", b"text", b"%PDF-1.7"])
def test_other_files_beside_the_photos_are_left_alone(tmp_path: Path, start: bytes) -> None:
    """Notes and databases are no failures."""
    fill(tmp_path, a_jpg=JPEG)
    (tmp_path / "notes.txt").write_bytes(start)

    assert names(tmp_path) == ["a.jpg"]


def test_hidden_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    """Thumbnails, and what other systems leave behind."""
    fill(tmp_path, a_jpg=JPEG)
    for name in (".b.jpg", "._a.jpg", ".thumbnails/c.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(JPEG)

    assert names(tmp_path) == ["a.jpg"]


def test_a_folder_named_like_a_photo_is_a_folder(tmp_path: Path) -> None:
    """What is inside counts."""
    fill(tmp_path, **{"set.jpg__a_jpg": JPEG})

    assert names(tmp_path) == ["set.jpg/a.jpg"]


def test_names_with_any_characters_are_kept(tmp_path: Path) -> None:
    """Blanks, umlauts, brackets."""
    (tmp_path / "Bäume [1] & so.jpg").write_bytes(JPEG)

    assert names(tmp_path) == ["Bäume [1] & so.jpg"]


def test_a_link_to_the_folder_leads_to_its_photos(tmp_path: Path) -> None:
    """Photos often lie on another disk."""
    fill(tmp_path, real__a_jpg=JPEG)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    (source,) = find_photos(tmp_path / "link")
    assert source.path == str((tmp_path / "real" / "a.jpg").resolve())


@pytest.mark.parametrize("name", ["no-such-folder", "a.jpg"])
def test_what_is_no_folder_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    """A single photo is no folder either."""
    fill(tmp_path, a_jpg=JPEG)

    with pytest.raises(ProjectError, match=f"{name} is not a folder"):
        find_photos(tmp_path / name)


def test_a_folder_without_photos_is_an_error_that_says_what_counts(tmp_path: Path) -> None:
    """Nothing could be done with it."""
    fill(tmp_path, notes_txt=b"text")

    with pytest.raises(ProjectError, match=r"no photo in .*JPEG, PNG, TIFF, WebP or BMP"):
        find_photos(tmp_path)
