"""Tests of the jobs that a project has still to plan."""

import json
from pathlib import Path

import pytest

from tasks import expand
from tasks.expand import ExpandPayload, Phase, run
from tasks.outlook import AHEAD
from tests.unit.tasks.accidents import finish
from tests.unit.tasks.pipeline_queue import PipelineQueue, new_queue
from tests.unit.tasks.scene_store import GRANT

IMAGES = 4
MATCHING = {"pairs": IMAGES, "partners": 2, "images": IMAGES}


def ahead_of(queue: PipelineQueue, phase: Phase, until: Phase = "model") -> dict[str, int]:
    """Return what the plan of a phase says is ahead."""
    payload = ExpandPayload(project=queue.project.id, phase=phase, until=until)
    (outcome,) = run([payload], GRANT, queue.store)
    ahead: dict[str, int] = json.loads(outcome.progress[AHEAD])  # type: ignore[union-attr]
    return ahead


def test_at_the_start_all_later_phases_are_ahead(tmp_path: Path) -> None:
    """What the window holds is not: it is planned."""
    ahead = ahead_of(new_queue(tmp_path, images=IMAGES), "import")

    assert ahead == MATCHING | {"import": 0, "features": IMAGES, "tracks": 1, "model": 1}


def test_nothing_is_ahead_of_the_last_phase_asked_for(tmp_path: Path) -> None:
    """Only the partners and the number of images are told all the same."""
    queue = new_queue(tmp_path, images=IMAGES)
    finish(queue, "import")

    assert ahead_of(queue, "features", until="features") == {"features": 0, "partners": 2, "images": IMAGES}


@pytest.mark.parametrize("done", [0, 1])
def test_the_rest_of_a_phase_is_taken_to_be_like_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """A window of two of four sources: two are ahead; where one of the two was there, one is."""
    monkeypatch.setattr(expand, "WINDOW_JOBS", 2 - done)
    queue = new_queue(tmp_path, images=IMAGES)
    queue.start()
    queue.complete(0)
    for _ in range(done):
        queue.complete(0)

    assert ahead_of(queue, "import")["import"] == 2 - done
