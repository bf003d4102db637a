"""What a project has come to is read from its store alone, at any point of its way."""

from pathlib import Path
from typing import Any

import pytest

from tasks.errors import Failure, Reason
from tasks.kind import Failed, Job, Outcome
from tasks.summary import summarise
from tests.unit.tasks.pipeline_queue import PipelineQueue, new_queue

NOTHING: dict[str, Any] = {
    "project": "tiny",
    "images": {"imported": 0, "failed": 0},
    "features": 0,
    "pairs": 0,
    "verified_pairs": 0,
    "tracks": 0,
    "observations": 0,
    "tracks_sha256": None,
    "models": [],
    "model_reason": None,
    "failures": [],
}


def summary_of(queue: PipelineQueue) -> dict[str, Any]:
    """Summarise a project."""
    return summarise(queue.store, queue.project)


@pytest.fixture
def queue(tmp_path: Path) -> PipelineQueue:
    """Return a project of three photos that nothing was done for."""
    return new_queue(tmp_path)


def test_a_project_that_has_not_begun_has_come_to_nothing(queue: PipelineQueue) -> None:
    """Every number is there, and is zero."""
    assert summary_of(queue) == NOTHING


@pytest.mark.parametrize(
    ("until", "imported", "pairs"),
    [("import", 3, 0), ("features", 3, 0), ("matching", 3, 3), ("tracks", 3, 3)],
)
def test_a_project_is_summarised_as_far_as_it_is(
    queue: PipelineQueue, until: str, imported: int, pairs: int
) -> None:
    """`tiepoint status` asks in the middle of a run."""
    queue.start(until)
    queue.run_to_the_end()
    summary = summary_of(queue)

    assert (summary["images"]["imported"], summary["pairs"]) == (imported, pairs)
    assert (summary["tracks_sha256"] is not None) == (until == "tracks")


def test_failed_photos_are_counted_and_named(tmp_path: Path) -> None:
    """One fails at import, one in feature extraction; a failed pair is no failed photo."""
    queue = new_queue(tmp_path, images=5)
    failing = {"import": 1, "features": 1, "match": 1}

    def fail_first(job: Job) -> Outcome:
        if failing[job.stage] == 0:
            return queue.do(job)
        failing[job.stage] -= 1
        failure = Failure(name=job.stage, reason=Reason.UNREADABLE, cause="told to", cure="none")
        return Failed(failure=failure)

    queue.instead = dict.fromkeys(failing, fail_first)
    queue.start("matching")
    queue.run_to_the_end()
    summary = summary_of(queue)

    assert summary["images"] == {"imported": 4, "failed": 2}
    assert sorted(failure["name"] for failure in summary["failures"]) == ["features", "import", "match"]
    assert summary["pairs"] == 3
