"""A user's folder is searched for photos: by name or first bytes, in one order, hidden things left alone."""

import errno
import os
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("name", [b"sch\xf6n.jpg", b"sch\xf6n/a.jpg", b"sch\xf6n"])
def test_a_name_that_is_no_text_is_an_error_that_names_it_and_the_cure(tmp_path: Path, name: bytes) -> None:
    """The file is shown as its bytes, whatever it is called a photo for."""
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(JPEG)

    with pytest.raises(ProjectError, match=r"'sch\\xf6n.*' is not valid UTF-8; rename it") as raised:
        find_photos(tmp_path)
    assert str(raised.value).encode()


def test_a_folder_whose_own_name_is_no_text_is_an_error_too(tmp_path: Path) -> None:
    """Its name is part of every path."""
    folder = tmp_path / os.fsdecode(b"sch\xf6n")
    fill(folder, a_jpg=JPEG)

    with pytest.raises(ProjectError, match=r"sch\\xf6n.*rename it"):
        find_photos(folder)


def test_other_files_may_be_called_anything(tmp_path: Path) -> None:
    """Only photos need a name in the project."""
    fill(tmp_path, a_jpg=JPEG)
    (tmp_path / os.fsdecode(b"sch\xf6n.txt")).write_text("notes")

    assert names(tmp_path) == ["a.jpg"]


@pytest.mark.parametrize("name", ["pipe", "pipe.jpg"])
def test_pipes_are_left_alone(tmp_path: Path, name: str) -> None:
    """Reading one would wait for ever; a link to one is no better."""
    fill(tmp_path, a_jpg=JPEG)
    os.mkfifo(tmp_path / name)
    (tmp_path / "link.jpg").symlink_to(tmp_path / name)

    assert names(tmp_path) == ["a.jpg"]


def test_a_link_into_nothing_is_a_photo_that_is_missing(tmp_path: Path) -> None:
    """It is told at import."""
    (tmp_path / "a.jpg").symlink_to(tmp_path / "gone.jpg")

    assert names(tmp_path) == ["a.jpg"]


def test_results_among_the_photos_are_left_alone(tmp_path: Path) -> None:
    """`tiepoint run .` puts them there, copies of the photos included."""
    fill(tmp_path, **{"a_jpg": JPEG, "survey.tiepoint__photos__ab__abcd": JPEG, "survey__b_jpg": JPEG})
    fill(tmp_path, **{"survey.tiepoint__projects__main__project_json": b"{}"})

    assert names(tmp_path) == ["a.jpg", "survey/b.jpg"]


def test_a_folder_of_results_is_no_folder_of_photos(tmp_path: Path) -> None:
    """One name too few on the command line."""
    fill(tmp_path, photos__ab__abcd_jpg=JPEG, projects__main__project_json=b"{}")

    with pytest.raises(ProjectError, match="holds a project"):
        find_photos(tmp_path)


def test_a_linked_photo_is_read_where_it_really_is(tmp_path: Path) -> None:
    """Import roots are made of these paths."""
    fill(tmp_path, elsewhere__original_jpg=JPEG, photos__b_jpg=JPEG)
    (tmp_path / "photos" / "a.jpg").symlink_to(tmp_path / "elsewhere" / "original.jpg")
    linked, real = find_photos(tmp_path / "photos")

    assert (linked.name, real.name) == ("a.jpg", "b.jpg")
    assert linked.path == str((tmp_path / "elsewhere" / "original.jpg").resolve())


def test_linked_folders_are_followed(tmp_path: Path) -> None:
    """Photos often lie on another disk."""
    fill(tmp_path, elsewhere__a_jpg=JPEG, photos__b_jpg=JPEG)
    (tmp_path / "photos" / "flight").symlink_to(tmp_path / "elsewhere")

    assert names(tmp_path / "photos") == ["b.jpg", "flight/a.jpg"]


def test_a_folder_that_is_linked_twice_counts_once_under_its_own_name(tmp_path: Path) -> None:
    """Whatever the links are called, and though they lead around in a circle."""
    fill(tmp_path, photos__real__a_jpg=JPEG, photos__b_jpg=JPEG)
    for name, target in (("1", "real"), ("2", "real"), ("3", "."), ("real/up", ".."), ("4", "..")):
        (tmp_path / "photos" / name).symlink_to((tmp_path / "photos").joinpath(name).parent / target)

    assert names(tmp_path / "photos") == ["b.jpg", "real/a.jpg"]


def test_a_folder_that_cannot_be_looked_into_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photos that are left out silently would be missed late."""
    closed = tmp_path / "closed"
    closed.mkdir()
    open_folder = os.scandir

    def scandir(path: str) -> Any:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_folder(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ProjectError, match="closed: Permission denied"):
        find_photos(tmp_path)
