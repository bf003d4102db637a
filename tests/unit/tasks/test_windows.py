"""Windows bound how long a small project waits for a large one in a list that is served in order."""

from pathlib import Path

import pytest

from tasks import expand
from tasks.expand import EXPAND_KIND, ExpandPayload, run
from tasks.kind import Done
from tests.unit.tasks.pipeline_queue import PipelineQueue, new_queue
from tests.unit.tasks.scene_store import GRANT

WINDOW, LOW_WATER = 16, 4


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale the windows down, as the projects are."""
    monkeypatch.setattr(expand, "WINDOW_JOBS", WINDOW)
    monkeypatch.setattr(expand, "LOW_WATER_JOBS", LOW_WATER)


def run_in_order(large: PipelineQueue, small: PipelineQueue, small_comes_after: int) -> list[str]:
    """Run both projects' jobs in the order they were pushed, plans first; return whose job ran when."""
    order: list[str] = []
    small.messages = large.messages
    large.start("import")
    while large.messages:
        if len(order) == small_comes_after and not small.phases and not _has_plan(small):
            small.start("import")
        index = next((i for i, job in enumerate(large.messages) if job.kind == EXPAND_KIND), 0)
        owner = small if large.messages[index].project == small.project.id else large
        order += [] if large.messages[index].kind == EXPAND_KIND else [owner.project.id]
        owner.complete(index)
    return order


def _has_plan(queue: PipelineQueue) -> bool:
    return any(job.project == queue.project.id for job in queue.messages)


@pytest.mark.parametrize("small_comes_after", [0, 1, WINDOW - LOW_WATER, WINDOW, 30])
def test_a_small_project_waits_for_no_more_than_a_window(tmp_path: Path, small_comes_after: int) -> None:
    """A full one, and what was left of the one before when that was pushed."""
    large, small = new_queue(tmp_path / "a", images=50), new_queue(tmp_path / "b", images=3)
    small.project = small.store.project("small")
    small.project.create(large.project.parameters, small.store.project("tiny").sources)
    order = run_in_order(large, small, small_comes_after)

    waited = order.index("small") - small_comes_after
    assert 0 <= waited <= WINDOW + LOW_WATER
    assert order.count("small") == 3
    assert order.count("tiny") == 50


def test_a_window_leaves_room_for_the_low_water(tmp_path: Path) -> None:
    """The next one is planned while nodes still have work, so that none runs dry."""
    queue = new_queue(tmp_path, images=50)
    queue.start("import")
    least = []
    while len(queue.executed) < 45:
        queue.complete(next((i for i, job in enumerate(queue.messages) if job.kind == EXPAND_KIND), 0))
        least.append(len([job for job in queue.messages if job.kind != EXPAND_KIND]))

    assert min(least[:-WINDOW]) >= LOW_WATER


def test_a_window_of_photos_to_look_at_is_a_quarter_as_large(tmp_path: Path) -> None:
    """Each takes about as long as four jobs of other phases; others wait no longer for them."""
    queue = new_queue(tmp_path, images=20)
    queue.start("import")
    queue.run_to_the_end()
    payload = ExpandPayload(project=queue.project.id, until="features")
    (outcome,) = run([payload], GRANT, queue.store)

    assert isinstance(outcome, Done)
    assert (len(outcome.follow_ups), outcome.continue_at) == (WINDOW // 4, LOW_WATER // 4)
