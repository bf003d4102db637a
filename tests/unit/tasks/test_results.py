"""Whether an item's result is there is told as the planner would see it; not of a whole project."""

from pathlib import Path

import pytest

from tasks.catalog import STAGES
from tasks.errors import MissingArtefactError
from tasks.parameters import PairParameters, ProjectParameters
from tasks.results import has_result
from tests.unit.tasks.pipeline_queue import PipelineQueue, new_queue

BY_LIKENESS = ProjectParameters(pairs=PairParameters(strategy="retrieval", top_k=2))


def is_there(queue: PipelineQueue, stage: str, item: str) -> bool:
    """Tell whether a result is there; what cannot be named yet is not."""
    try:
        return has_result(queue.store, queue.project, stage, item)
    except MissingArtefactError:
        return False


@pytest.mark.parametrize(
    ("parameters", "left_out"), [(ProjectParameters(), {"index"}), (BY_LIKENESS, {"match", "verify"})]
)
def test_a_result_is_there_once_its_job_is_done_and_not_before(
    tmp_path: Path, parameters: ProjectParameters, left_out: set[str]
) -> None:
    """Each job of a project is asked for before it runs, and after."""
    queue = new_queue(tmp_path / "store", parameters=parameters)
    queue.start()
    told: dict[str, set[tuple[bool, bool]]] = {}
    while queue.messages:
        job = queue.messages[0]
        before = is_there(queue, job.stage, job.item)
        queue.complete(0)
        told.setdefault(job.stage, set()).add((before, is_there(queue, job.stage, job.item)))

    of_whole_projects = [told.pop(stage) for stage in ("plan", "tracks", "model")]

    assert of_whole_projects == [{(False, False)}] * 3
    assert told.keys() == set(STAGES) - {"tracks", "model"} - left_out
    assert all(answers == {(False, True)} for answers in told.values()), told


@pytest.mark.parametrize("stage", [*STAGES, "made-up"])
def test_of_what_is_no_item_there_is_no_result(tmp_path: Path, stage: str) -> None:
    """Anybody can name one in a message."""
    queue = new_queue(tmp_path / "store")

    assert not is_there(queue, stage, "../no-such-item")
