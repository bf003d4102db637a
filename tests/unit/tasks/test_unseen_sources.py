"""A source that is not seen here is told apart from one that cannot be used: another node may see it."""

from pathlib import Path

import pytest

from tasks.errors import Reason
from tasks.kind import Done, Elsewhere, Failed, Outcome
from tasks.store import Store
from tests.unit.tasks.photo_builders import encoded, import_photo, store_at, textured


def a_photo(path: Path) -> Path:
    """Write a small photo."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(textured(64, 48)))
    return path


def elsewhere(outcome: Outcome) -> Elsewhere:
    """Return an outcome that leaves an item to others; fail the test where it is none."""
    assert isinstance(outcome, Elsewhere)
    return outcome


def test_a_source_outside_the_import_roots_counts_no_attempt(tmp_path: Path) -> None:
    """This node was never meant to see it; elsewhere it is looked for under the same path."""
    store = store_at(tmp_path / "mine")
    photo = a_photo(tmp_path / "other" / "a.jpg")
    outcome = elsewhere(import_photo(store, photo))

    assert (outcome.source, outcome.counts_attempt) == (str(photo), False)
    assert outcome.failure.reason is Reason.OUTSIDE_IMPORT_ROOTS


def test_a_source_that_is_not_there_counts_one(tmp_path: Path) -> None:
    """Its folder may not be mounted here, or the file is gone."""
    outcome = elsewhere(import_photo(store_at(tmp_path), tmp_path / "folder" / "gone.jpg"))

    assert outcome.counts_attempt
    assert outcome.failure.reason is Reason.UNREADABLE
    assert "No such file" in outcome.failure.cause


@pytest.mark.parametrize("content", [b"", b"text", encoded(textured(64, 48))[:300]])
def test_a_source_that_is_seen_and_cannot_be_used_fails(tmp_path: Path, content: bytes) -> None:
    """No other node would find anything else."""
    (tmp_path / "bad.jpg").write_bytes(content)
    outcome = import_photo(store_at(tmp_path), tmp_path / "bad.jpg")

    assert isinstance(outcome, Failed)
    assert not isinstance(outcome, Elsewhere)


def test_a_folder_in_place_of_a_source_fails(tmp_path: Path) -> None:
    """It is seen."""
    (tmp_path / "folder.jpg").mkdir()
    outcome = import_photo(store_at(tmp_path), tmp_path / "folder.jpg")

    assert isinstance(outcome, Failed)
    assert not isinstance(outcome, Elsewhere)


def test_a_lost_photo_whose_source_is_not_there_may_come_back_elsewhere(tmp_path: Path) -> None:
    """Where it does not, it is lost, and told as that."""
    store, photo = store_at(tmp_path), a_photo(tmp_path / "a.jpg")
    import_photo(store, photo)
    _lose(store)
    photo.unlink()
    outcome = elsewhere(import_photo(store, photo))

    assert outcome.counts_attempt
    assert outcome.failure.reason is Reason.LOST


def _lose(store: Store) -> None:
    (content,) = store.project("survey").registrations().values()
    store.discard_photo(content)


def test_a_source_may_be_named_relative_to_the_store(tmp_path: Path) -> None:
    """Wherever the store is mounted; it may not lead out of it."""
    store = Store(tmp_path / "store")
    store.create()
    a_photo(store.root / "photos" / "a.jpg")
    a_photo(tmp_path / "b.jpg")
    inside = import_photo(store, Path("photos/a.jpg"))
    outside = import_photo(store, Path("../b.jpg"), name="b.jpg")

    assert isinstance(inside, Done)
    assert elsewhere(outside).failure.reason is Reason.OUTSIDE_IMPORT_ROOTS
