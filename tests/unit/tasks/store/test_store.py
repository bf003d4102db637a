"""Tests of the store as a whole: confinement, sweeping, photos."""

import hashlib
import io
import os
from pathlib import Path

import pytest

from tasks.errors import CorruptArtefactError, ItemError, MissingArtefactError, Reason, StoreError
from tasks.store import PhotoRecord, Store, artefact_key
from tests.unit.tasks.photo_builders import store_at

PHOTO = b"the bytes of a photo"
CONTENT = hashlib.sha256(PHOTO).hexdigest()
RECORD = PhotoRecord(width_px=4, height_px=3, focal_length_px=4.8, focal_is_prior=False)
NOW_NS = 2_000_000_000 * 10**9


def linked(store: Store, source: Path) -> Path:
    """Put a linked photo into the store."""
    source.write_bytes(PHOTO)
    store.link_photo(CONTENT, source)
    store.record_photo(CONTENT, RECORD)
    return source


def test_a_copied_photo_is_there_with_its_record(tmp_path: Path) -> None:
    """Photo and record come back as they went in."""
    store = store_at(tmp_path)
    copied = store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    before = store.has_photo(CONTENT)
    store.record_photo(CONTENT, RECORD)

    assert (copied, before, store.has_photo(CONTENT)) == (True, False, True)
    assert store.photo_path(CONTENT).read_bytes() == PHOTO
    assert store.photo_record(CONTENT) == RECORD


def test_bytes_of_another_hash_are_not_stored(tmp_path: Path) -> None:
    """A source that changed between hashing and copying leaves no trace."""
    store = store_at(tmp_path)
    copied = store.copy_photo(CONTENT, io.BytesIO(PHOTO + b"!"))

    assert not copied
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_a_linked_photo_is_the_users_own_file(tmp_path: Path) -> None:
    """Nothing is copied."""
    store = store_at(tmp_path)
    source = linked(store, tmp_path / "photo.jpg")

    assert store.photo_path(CONTENT) == source


def test_a_linked_photo_with_a_new_time_stamp_is_still_the_photo(tmp_path: Path) -> None:
    """Copying a folder back does not invalidate a project."""
    store = store_at(tmp_path)
    source = linked(store, tmp_path / "photo.jpg")
    os.utime(source, ns=(NOW_NS, NOW_NS))

    assert store.photo_path(CONTENT) == source


def test_a_changed_linked_photo_fails_by_name(tmp_path: Path) -> None:
    """An edited file of the same size is noticed."""
    store = store_at(tmp_path)
    source = linked(store, tmp_path / "photo.jpg")
    source.write_bytes(PHOTO.upper())
    os.utime(source, ns=(NOW_NS, NOW_NS))
    with pytest.raises(ItemError, match=r"photo\.jpg has changed since it was imported") as caught:
        store.photo_path(CONTENT)

    assert caught.value.failure.reason is Reason.UNREADABLE
    assert not store.has_photo(CONTENT)


def test_a_missing_linked_photo_fails_by_name(tmp_path: Path) -> None:
    """A file that was moved away is named with its path."""
    store = store_at(tmp_path)
    linked(store, tmp_path / "photo.jpg").unlink()
    with pytest.raises(ItemError, match=r"photo\.jpg cannot be read"):
        store.photo_path(CONTENT)


def test_damage_to_a_photo_is_found_by_its_hash(tmp_path: Path) -> None:
    """One flipped bit in the store's copy does not pass."""
    store = store_at(tmp_path)
    store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    before = store.photo_is_intact(CONTENT)
    store.photo_path(CONTENT).write_bytes(PHOTO[:-1] + b"?")

    assert (before, store.photo_is_intact(CONTENT)) == (True, False)


def test_a_photo_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """Missing bytes and missing records say so."""
    store = store_at(tmp_path)
    with pytest.raises(MissingArtefactError):
        store.photo_path(CONTENT)
    with pytest.raises(MissingArtefactError):
        store.photo_record(CONTENT)


def test_a_content_that_is_no_hash_cannot_reach_other_files(tmp_path: Path) -> None:
    """Payloads come from outside."""
    with pytest.raises(StoreError, match="is not the SHA-256"):
        store_at(tmp_path).photo_path("../../etc/passwd")


def test_a_source_inside_an_import_root_is_resolved(tmp_path: Path) -> None:
    """The root itself may be reached through a symbolic link."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "photos")
    store = Store(tmp_path / "store", [tmp_path / "alias"])

    assert store.resolve_source(str(tmp_path / "alias" / "a.jpg")) == tmp_path / "photos" / "a.jpg"


@pytest.mark.parametrize("path", ["/etc/passwd", "photos/../secret.jpg", "photos/link.jpg", "photos2/a.jpg"])
def test_a_source_outside_the_import_roots_is_refused(tmp_path: Path, path: str) -> None:
    """Neither dots, nor symbolic links, nor a common prefix lead out."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    store = Store(tmp_path / "store", [tmp_path / "photos"])
    with pytest.raises(ItemError) as caught:
        store.resolve_source(str(tmp_path / path))

    assert caught.value.failure.reason is Reason.OUTSIDE_IMPORT_ROOTS


@pytest.mark.parametrize(("age_seconds", "swept"), [(3600, 0), (3601, 2)])
def test_only_old_temporaries_are_swept(tmp_path: Path, age_seconds: int, swept: int) -> None:
    """What may still be written to stays, and so does everything that has its name."""
    store = store_at(tmp_path)
    store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    folder = store.root / "artefacts" / ".tmp-folder"
    folder.mkdir(parents=True)
    (store.root / ".tmp-file").write_bytes(b"torn")
    (folder / "part").write_bytes(b"torn")
    written_ns = NOW_NS - age_seconds * 10**9
    for path in store.root.rglob("*"):
        os.utime(path, ns=(written_ns, written_ns))

    assert store.sweep_temporaries(NOW_NS) == swept
    assert store.photo_path(CONTENT).read_bytes() == PHOTO
    assert folder.exists() == (swept == 0)


@pytest.mark.parametrize("text", ["", "{", "null", '{"width_px": 0}', "\xff"])
def test_a_damaged_record_is_corrupt_until_discarded(tmp_path: Path, text: str) -> None:
    """Then it is missing; the bytes of the photo stay."""
    store = store_at(tmp_path)
    store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    store.record_photo(CONTENT, RECORD)
    next(store.root.glob("photos/*/*.json")).write_text(text, encoding="latin-1")

    with pytest.raises(CorruptArtefactError, match="is damaged"):
        store.photo_record(CONTENT)
    store.discard_photo_record(CONTENT)
    assert not store.has_photo_record(CONTENT)
    assert store.photo_is_intact(CONTENT)


def test_a_damaged_link_counts_as_absent(tmp_path: Path) -> None:
    """The photo is to be imported again; nothing else is lost."""
    store = store_at(tmp_path)
    linked(store, tmp_path / "a.jpg")
    next(store.root.glob("photos/*/*.link")).write_text("{")

    assert not store.has_photo(CONTENT)
    with pytest.raises(MissingArtefactError, match="is damaged"):
        store.photo_path(CONTENT)


def test_who_only_looks_discards_nothing(tmp_path: Path) -> None:
    """The same store, but damage stays where it is."""
    store = store_at(tmp_path)
    key = artefact_key("features.extract", 1, {}, [CONTENT])
    store.publish(key, {}, {})
    store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    store.record_photo(CONTENT, RECORD)
    looking = store.keeping_damage()
    looking.discard(key)
    looking.discard_photo(CONTENT)
    looking.discard_photo_record(CONTENT)

    assert store.has(key)
    assert store.has_photo(CONTENT)
