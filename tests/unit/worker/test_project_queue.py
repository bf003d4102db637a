"""The client reads the live state, and turns what Redis says into its own errors and sentences."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError

from worker.project_queue import ProjectQueue, QueueError, queue_errors
from worker.project_state import PlanningFailure, ProjectState, StageProgress

REPORT = {"kind": "pipeline.expand", "job_id": "1", "attempts": 3, "name": "plan", "reason": "internal_error"}
CALLS: list[Callable[[ProjectQueue], Any]] = [
    lambda client: client.start("main", until="model"),
    lambda client: client.state("main"),
    lambda client: client.waits_for("node"),
]
ERRORS = [redis.ConnectionError("refused"), redis.TimeoutError("late"), redis.ResponseError("OOM")]
CURES = [
    (redis.ConnectionError("refused."), "check that it runs, and its URL"),
    (OperationalError("refused."), "check that it runs, and its URL"),
    (redis.AuthenticationError("Authentication required."), "its URL must hold the right password"),
    (redis.ResponseError("OOM."), "look at the server's log"),
]


class FakeRedis:
    """A server that holds one hash, or answers with an error."""

    def __init__(self, fields: dict[bytes, bytes] | None = None, error: Exception | None = None) -> None:
        self._fields = fields or {}
        self._error = error

    def hgetall(self, _key: str) -> dict[bytes, bytes]:
        """Return the hash."""
        if self._error is not None:
            raise self._error
        return self._fields

    def hget(self, _key: str, name: str) -> bytes | None:
        """Return one field."""
        return self.hgetall(_key).get(name.encode())

    def evalsha(self, *_: object) -> int:
        """Run a script: it says yes."""
        self.hgetall("")
        return 1


def client_of(server: FakeRedis) -> ProjectQueue:
    """Return a client of a fake server."""
    client = ProjectQueue("redis://127.0.0.1:1/0")
    client._redis = server  # type: ignore[assignment]
    return client


def state_of(**fields: str) -> ProjectState:
    """Return what a client reads from a project's hash."""
    stored = {name.encode(): value.encode() for name, value in fields.items()}
    return client_of(FakeRedis(stored)).state("main")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", CALLS, ids=["start", "state", "waits_for"])
def test_every_redis_error_becomes_the_clients_own(
    call: Callable[[ProjectQueue], Any], error: Exception
) -> None:
    """With the first one kept as its cause."""
    with pytest.raises(QueueError, match=f"the queue (refuses|does not answer): {error}") as caught:
        call(client_of(FakeRedis(error=error)))

    assert caught.value.__cause__ is error


@pytest.mark.parametrize(("error", "cure"), CURES)
def test_an_error_of_the_queue_is_told_with_its_cure(error: Exception, cure: str) -> None:
    """In one sentence, whoever has met it."""
    with pytest.raises(QueueError) as caught, queue_errors():
        raise error

    assert f": {str(error)[:-1]}; {cure}" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (redis.TimeoutError("no reply"), "the queue does not answer: "),
        (redis.ResponseError("out of memory"), "the queue refuses: "),
    ],
)
def test_a_queue_that_refuses_has_answered(error: Exception, beginning: str) -> None:
    """Whoever reads it must not look for a server that is down."""
    with pytest.raises(QueueError) as caught, queue_errors():
        raise error

    assert str(caught.value).startswith(beginning)


def test_a_failed_plan_is_told_with_cause_and_cure() -> None:
    """The report is JSON; nobody should have to read that."""
    report = json.dumps({**REPORT, "cause": "The disk is full.", "cure": "Free some space."})

    failure = PlanningFailure(cause="The disk is full.", cure="Free some space.")
    assert state_of(state="failed", failure=report).failure == failure


@pytest.mark.parametrize("report", ["", "{", "[]", "null", "5", '{"cause": "no cure"}'])
def test_a_report_that_cannot_be_read_is_still_a_failure(report: str) -> None:
    """A failed project is never taken for a running one."""
    failure = state_of(state="failed", failure=report).failure

    assert failure is not None
    assert report in failure.cause
    assert failure.cause


def test_a_project_that_runs_again_has_not_failed() -> None:
    """The report of the failed run may still be there."""
    assert state_of(state="running", failure=json.dumps(REPORT)).failure is None


def test_a_project_that_the_queue_does_not_know_is_unknown() -> None:
    """No hash, no state."""
    assert state_of() == ProjectState(state="unknown")


def test_stages_and_kinds_are_read_from_the_fields() -> None:
    """Counts, seconds between first and last, ratios."""
    stored = {"match:planned": "4", "match:done": "3", "match:failed": "1", "match:started_ms": "1000"}
    stored |= {"match:finished_ms": "3500", "kind:matcher.run:batches": "2"}
    stored |= {"kind:matcher.run:ratio_permille": "250"}
    state = state_of(state="running", **stored)

    match = StageProgress(planned=4, done=3, failed=1, started_ms=1000, finished_ms=3500)
    assert state.stages == {"match": match}
    assert match.seconds == 2.5
    assert state.kinds["matcher.run"]["worst_ratio"] == 0.25
