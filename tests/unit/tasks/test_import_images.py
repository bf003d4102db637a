"""Tests of importing photos."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tasks.errors import Reason
from tasks.import_images import ESTIMATE, KINDS, ImportPayload, run
from tasks.kind import Done, Failed, Outcome
from tasks.store import Store
from tests.unit.tasks.photo_builders import AMPLE, encoded, import_photo, store_at, textured

PHOTO = encoded(textured(96, 64))


def reason(outcome: Outcome) -> Reason:
    """Return why an item failed."""
    assert isinstance(outcome, Failed)
    return outcome.failure.reason


def test_an_imported_photo_is_copied_recorded_and_registered(tmp_path: Path) -> None:
    """The bytes are the same, the header is read, the name is kept."""
    store, source = store_at(tmp_path), tmp_path / "Fläche 1.JPG"
    source.write_bytes(PHOTO)
    outcome = import_photo(store, source, name="sub dir/Fläche 1.JPG")
    ((name, content),) = store.project("survey").registrations().items()

    assert outcome == Done(recorded_items=1)
    assert (name, content) == ("sub dir/Fläche 1.JPG", hashlib.sha256(PHOTO).hexdigest())
    assert store.photo_path(content).read_bytes() == PHOTO
    assert store.photo_record(content).width_px == 96


def test_a_repeated_import_counts_nothing(tmp_path: Path) -> None:
    """A redelivered message is harmless."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    outcomes = [import_photo(store, source) for _ in range(2)]

    assert outcomes == [Done(recorded_items=1), Done(recorded_items=0)]


def test_a_photo_that_is_in_the_store_is_adopted_without_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second project counts the image, but no byte is copied."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    import_photo(store, source)

    def refuse(*_arguments: Any) -> bool:
        pytest.fail("copied again")

    monkeypatch.setattr(Store, "copy_photo", refuse)
    payload = ImportPayload(project="other", name="a.jpg", source=str(source))

    assert list(run([payload], AMPLE, store)) == [Done(recorded_items=1)]


def test_a_damaged_copy_in_the_store_is_not_adopted(tmp_path: Path) -> None:
    """Importing the original again repairs the store."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    import_photo(store, source)
    copy = store.photo_path(hashlib.sha256(PHOTO).hexdigest())
    copy.write_bytes(PHOTO[:-1])
    import_photo(store, source)

    assert copy.read_bytes() == PHOTO


def test_a_linked_photo_stays_where_it_is(tmp_path: Path) -> None:
    """`--link` copies nothing and reads the user's own file."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    import_photo(store, source, link=True)
    ((_, content),) = store.project("survey").registrations().items()

    assert store.photo_path(content) == source
    assert store.photo_record(content).height_px == 64


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", Reason.EMPTY_FILE),
        (PHOTO[:1500], Reason.TRUNCATED),
        (b"this is a text, not a photo", Reason.NOT_AN_IMAGE),
    ],
)
def test_a_file_that_cannot_be_used_fails_by_name_and_with_a_cure(
    tmp_path: Path, content: bytes, expected: Reason
) -> None:
    """Nothing of it reaches the store, and the user learns which file and what to do."""
    store, source = store_at(tmp_path), tmp_path / "bad.jpg"
    source.write_bytes(content)
    outcome = import_photo(store, source)

    assert isinstance(outcome, Failed)
    assert outcome.failure.reason is expected
    assert "bad.jpg" in outcome.failure.cause
    assert str(source) in outcome.failure.cure
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_a_jpeg_cut_to_3000_bytes_is_caught_at_import(tmp_path: Path) -> None:
    """The end marker is missing, even though the header is whole."""
    source = tmp_path / "cut.jpg"
    source.write_bytes(encoded(textured(640, 480))[:3000])

    assert reason(import_photo(store_at(tmp_path), source)) is Reason.TRUNCATED


def test_one_bad_file_does_not_stop_the_batch(tmp_path: Path) -> None:
    """Outcomes come in order, one per payload."""
    store = store_at(tmp_path)
    payloads = []
    for name, content in (("a.jpg", PHOTO), ("b.jpg", b""), ("c.jpg", encoded(textured(96, 64, seed=1)))):
        (tmp_path / name).write_bytes(content)
        payloads.append(ImportPayload(project="survey", name=name, source=str(tmp_path / name)))

    assert [type(outcome) for outcome in run(payloads, AMPLE, store)] == [Done, Failed, Done]
    assert [image.name for image in store.project("survey").images()] == ["a.jpg", "c.jpg"]


def test_a_source_that_is_gone_or_a_folder_is_unreadable(tmp_path: Path) -> None:
    """Operating system errors of the source are the item's, not the store's."""
    store = store_at(tmp_path)

    assert reason(import_photo(store, tmp_path / "gone.jpg")) is Reason.UNREADABLE
    assert reason(import_photo(store, tmp_path, name="folder.jpg")) is Reason.UNREADABLE


def test_a_source_outside_the_import_roots_is_refused(tmp_path: Path) -> None:
    """A message cannot make a node read any file it likes."""
    assert reason(import_photo(store_at(tmp_path), Path("/etc/hostname"))) is Reason.OUTSIDE_IMPORT_ROOTS


def test_a_source_that_changes_while_it_is_copied_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a camera still writes to is not registered."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    has_photo = store.has_photo

    def has_photo_while_written(content: str) -> bool:
        with source.open("ab") as file:
            file.write(b"more")
        os.utime(source, ns=(1, 1))
        return has_photo(content)

    monkeypatch.setattr(store, "has_photo", has_photo_while_written)

    assert reason(import_photo(store, source)) is Reason.CHANGED_WHILE_COPYING
    assert store.project("survey").registrations() == {}


CONTENT = hashlib.sha256(PHOTO).hexdigest()


def imported(folder: Path) -> tuple[Store, Path]:
    """Return a store with one photo imported, and its source."""
    store, source = store_at(folder), folder / "a.jpg"
    source.write_bytes(PHOTO)
    import_photo(store, source)
    return store, source


@pytest.mark.parametrize("record", [None, "", "{", '{"width_px": 0}'])
@pytest.mark.parametrize("has_source", [True, False])
def test_a_lost_record_is_read_anew_from_the_copy(
    tmp_path: Path,
    record: str | None,
    has_source: bool,  # noqa: FBT001
) -> None:
    """The original is not needed for it."""
    store, source = imported(tmp_path)
    expected = store.photo_record(CONTENT)
    place = next(store.root.glob("photos/*/*.json"))
    place.unlink() if record is None else place.write_text(record)
    if not has_source:
        source.unlink()
    outcome = import_photo(store, source)

    assert outcome == Done(recorded_items=0)
    assert store.photo_record(CONTENT) == expected


def test_a_lost_photo_comes_back_from_its_source(tmp_path: Path) -> None:
    """The registration is there, the bytes are not."""
    store, source = imported(tmp_path)
    store.photo_path(CONTENT).unlink()

    assert import_photo(store, source) == Done(recorded_items=0)
    assert store.photo_path(CONTENT).read_bytes() == PHOTO


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("source_now", [None, b"", encoded(textured(96, 64, seed=2))])
def test_a_lost_photo_whose_source_is_no_help_is_lost(
    tmp_path: Path,
    source_now: bytes | None,
    link: bool,  # noqa: FBT001
) -> None:
    """Gone, broken or changed: another photo never takes its name."""
    store, source = store_at(tmp_path), tmp_path / "a.jpg"
    source.write_bytes(PHOTO)
    import_photo(store, source, link=link)
    store.discard_photo(CONTENT)
    source.unlink() if source_now is None else source.write_bytes(source_now)
    outcome = import_photo(store, source, link=link)

    assert reason(outcome) is Reason.LOST
    assert isinstance(outcome, Failed)
    assert "a.jpg is lost: what the project has of it is damaged or gone" in outcome.failure.cause
    assert str(source) in outcome.failure.cure
    assert list(store.project("survey").registrations().values()) == [CONTENT]
    assert not [path for path in store.root.glob("photos/*/*") if path.is_file()]


def test_a_pipe_is_no_photo_and_is_not_waited_for(tmp_path: Path) -> None:
    """Opening one blocks until somebody writes."""
    os.mkfifo(tmp_path / "a.jpg")

    assert reason(import_photo(store_at(tmp_path), tmp_path / "a.jpg")) is Reason.UNREADABLE


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", ""])
def test_a_name_that_leaves_the_project_is_an_invalid_payload(name: str) -> None:
    """Names become paths in exports."""
    with pytest.raises(ValidationError, match="not a relative path"):
        ImportPayload(project="survey", name=name, source="/photos/a.jpg")


def test_the_kind_declares_the_frozen_row_with_its_floor() -> None:
    """319 bytes per image and batches of 32 are the owner's; 16 MiB are ours."""
    (kind,) = KINDS

    assert (kind.name, kind.stage, kind.estimate) == ("import.images", "import", ESTIMATE)
    assert ESTIMATE.is_valid()
    assert (ESTIMATE.memory_per_item_bytes, ESTIMATE.max_batch, ESTIMATE.io_slots) == (319, 32, 1)
    assert ESTIMATE.memory_fixed_bytes == 16 << 20


def test_a_batch_does_not_depend_on_how_it_is_cut(tmp_path: Path) -> None:
    """One batch of four and four batches of one leave the same files."""
    trees = []
    contents = [encoded(textured(64, 64, seed=seed)) for seed in range(4)]
    for part, batch in (("one", 4), ("four", 1)):
        folder = tmp_path / part
        folder.mkdir()
        store, random = store_at(folder), np.random.default_rng(batch)
        payloads = []
        for index in random.permutation(4):
            source = folder / f"{index}.jpg"
            source.write_bytes(contents[index])
            payloads.append(ImportPayload(project="survey", name=source.name, source=str(source)))
        for start in range(0, 4, batch):
            list(run(payloads[start : start + batch], AMPLE, store))
        files = (path for path in sorted(store.root.rglob("*")) if path.is_file())
        trees.append([(path.relative_to(store.root), path.read_bytes()) for path in files])

    assert trees[0] == trees[1]
