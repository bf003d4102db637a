"""Holds what may happen to a project's jobs and files on the way, and how a test lets it happen."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks import expand
from tasks.errors import Failure, Reason
from tasks.expand import Phase
from tasks.kind import Failed, Job, NotReady, Outcome
from tasks.store import ArtefactKey
from tests.unit.tasks.pipeline_queue import PipelineQueue

ACTIONS = ("complete", "complete", "complete", "kill", "run_twice", "settle_not_ready", "damage", "lose")
Steps = Sequence[tuple[str, int]]
"""Each an action, and a number that chooses what it happens to."""


def with_accidents(max_examples: int) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Give a test many ``steps`` and sizes of a ``window``."""
    steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), max_size=60)
    given_accidents = given(steps=steps, window=st.integers(1, 4))
    repeated = settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        derandomize=True,
    )
    return lambda test: repeated(given_accidents(test))


def finish_through_accidents(queue: PipelineQueue, steps: Steps, window: int) -> None:
    """Let accidents happen in windows of so many jobs, then run the project to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expand, "WINDOW_JOBS", window)
        patch.setattr(expand, "LOW_WATER_JOBS", window // 2)
        queue.start()
        for action, index in steps:
            _have_accident(queue, action, index)
        queue.run_to_the_end()
        finish(queue)


def finish(queue: PipelineQueue, until: Phase = "model") -> None:
    """Run a project to its end."""
    queue.start(until)
    queue.run_to_the_end()
    assert queue.is_done


def damage(queue: PipelineQueue, key: ArtefactKey) -> None:
    """Change the last byte of an artefact's file."""
    (path,) = queue.store.root.rglob(f"{key.digest}.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def failed(job: Job) -> Outcome:
    """Fail a job for good."""
    return Failed(failure=Failure(name=job.item, reason=Reason.UNREADABLE, cause="told to", cure="none"))


def _have_accident(queue: PipelineQueue, action: str, index: int) -> None:
    """Let one accident happen to one of the waiting jobs, or to a file."""
    if not queue.messages:
        return
    place = index % len(queue.messages)
    if action == "complete":
        queue.complete(place)
    elif action == "run_twice":
        queue.execute(queue.messages[place])
        queue.complete(place)
    elif action == "kill":
        queue.execute(queue.messages[place])
    elif action == "settle_not_ready" and queue.messages[place].stage != "plan":
        queue.settle(queue.messages.pop(place), NotReady(cause="an input is missing"))
    elif action in {"damage", "lose"}:
        _spoil(queue, action, index)


def _spoil(queue: PipelineQueue, action: str, index: int) -> None:
    patterns = ("artefacts/**/*.safetensors", "photos/*/*", "projects/*/registrations/*")
    files = sorted(path for pattern in patterns for path in queue.store.root.glob(pattern) if path.is_file())
    if not files:
        return
    path = files[index % len(files)]
    if action == "lose":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
