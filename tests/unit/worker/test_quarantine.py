"""A failed item is recorded where its project is, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.errors import Failure, Reason, StoreError
from tasks.pair_jobs import matches_key, pair_item
from tasks.parameters import ProjectParameters
from tasks.store import Project, Store
from worker.frames import Place
from worker.quarantine import clear_failure, record_failure

FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")
LEFT, RIGHT = "a" * 64, "b" * 64


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


def matched(store: Store) -> Place:
    """Publish the matches of a pair of p; return the place of the job that was to make them."""
    parameters = store.project("p").parameters
    key = matches_key(LEFT, RIGHT, parameters.features, parameters.matching)
    store.publish(key, {"pairs": np.zeros((0, 2), np.uint32)}, {})
    return Place(project="p", stage="match", item=pair_item(LEFT, RIGHT))


def test_what_another_node_has_done_meanwhile_has_not_failed(store: Store) -> None:
    """A node that was stopped for a while fails with what it was at."""
    record_failure(store, matched(store), FAILURE)

    assert store.project("p").failures() == []


def test_a_result_that_comes_while_its_failure_is_written_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker found no failure to take back."""
    write = Project.record_failure

    def be_overtaken(project: Project, stage: str, item: str, failure: Failure) -> None:
        clear_failure(store, matched(store))
        write(project, stage, item, failure)

    monkeypatch.setattr(Project, "record_failure", be_overtaken)
    record_failure(store, Place(project="p", stage="match", item=pair_item(LEFT, RIGHT)), FAILURE)

    assert store.project("p").failures() == []


def test_the_failure_of_a_later_stage_stands(store: Store) -> None:
    """Matches alone verify nothing."""
    place = replace(matched(store), stage="verify")
    record_failure(store, place, FAILURE)

    assert store.project("p").failures() == [("verify", place.item, FAILURE)]


def test_a_failure_is_taken_back_once_its_item_is_done(store: Store) -> None:
    """Its node was killed before it could tell; another has done it."""
    place = Place(project="p", stage="match", item="a")
    record_failure(store, place, FAILURE)
    clear_failure(store, place)

    assert store.project("p").failures() == []


def test_a_damaged_project_hides_no_failure(store: Store) -> None:
    """What was to be made cannot be named then."""
    (store.project("p").path / "project.json").write_text("{")
    record_failure(store, Place(project="p", stage="match", item="a-b"), FAILURE)

    assert store.project("p").failures() == [("match", "a-b", FAILURE)]
