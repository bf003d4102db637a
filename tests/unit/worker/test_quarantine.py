"""A failed item is recorded where its project is, and nowhere else."""

from pathlib import Path

import pytest

from tasks.errors import Failure, Reason, StoreError
from tasks.parameters import ProjectParameters
from tasks.store import Store
from worker.frames import Place
from worker.quarantine import record_failure

FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with the project p."""
    store = Store(tmp_path / "store")
    store.create()
    store.project("p").create(ProjectParameters(), [])
    return store


def test_a_failure_is_recorded_under_its_place(store: Store) -> None:
    """Stage and item, as the plan names them."""
    record_failure(store, Place(project="p", stage="match", item="a"), FAILURE)

    assert store.project("p").failures() == [("match", "a", FAILURE)]


def test_a_project_that_is_not_there_is_not_made_up(store: Store) -> None:
    """Any client can name one in a header."""
    record_failure(store, Place(project="made-up", stage="match", item="a"), FAILURE)

    assert not store.project("made-up").path.exists()


def test_a_job_without_a_place_leaves_nothing(store: Store) -> None:
    """A stock client's job belongs to no project."""
    record_failure(store, None, FAILURE)

    assert store.project("p").failures() == []


def test_a_store_that_is_away_is_an_error(store: Store) -> None:
    """Its projects are not "not there": the item is tried again when the store is back."""
    store.root.rename(store.root.with_name("away"))

    with pytest.raises(StoreError):
        record_failure(store, Place(project="p", stage="match", item="a"), FAILURE)
