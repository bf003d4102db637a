"""What waits first is read as jobs, within bounds; what is blocked of it is told per project."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from governor.model import Estimate
from tests.unit.worker.builders import a_job, a_kind
from worker.envelope import to_message
from worker.live_nodes import LiveNode
from worker.project_queue import Parked, ProjectQueue
from worker.waiting_jobs import blocked_jobs, estimate_of, waiting_job

GIB = 1 << 30
KIND = a_kind()
BIG = Estimate(memory_fixed_bytes=9 * GIB)
NODE = LiveNode(name="attic", offers_memory_bytes=GIB, budget_memory_bytes=GIB)
NOW_MS = 1_000_000


def a_message(item: str = "a", estimate: Estimate | None = BIG, project: str = "p") -> bytes:
    """Return a message's text."""
    return to_message(a_job(item, estimate=estimate, project=project)).encode()


class FakeQueue:
    """A queue with one list, and some entries set aside."""

    def __init__(self, *waiting: bytes, large: Sequence[Parked] = ()) -> None:
        self._waiting, self._large = waiting, list(large)
        self.looked_behind = False

    def first_waiting(self, _kinds: Sequence[str]) -> list[Parked]:
        """Return the list's head and what was set aside."""
        heads = [Parked(list="noop", payload=payload, is_head=True) for payload in self._waiting[:1]]
        return heads + self._large

    def waiting_in(self, _name: str) -> Iterator[bytes]:
        """Yield the list."""
        self.looked_behind = True
        yield from self._waiting

    def server_ms(self) -> int:
        """Return the server's time."""
        return NOW_MS


def told(queue: FakeQueue, project: str | None = None) -> list[tuple[str, int]]:
    """Return the projects of what is blocked, and how many jobs each."""
    found = blocked_jobs(cast("ProjectQueue", queue), {"noop": KIND}, [NODE], project)
    return [(one.project, one.jobs) for one in found]


def test_the_estimate_is_the_messages_own_or_the_kinds() -> None:
    """A larger need that was found on the way comes first."""
    moved = json.dumps(
        {"tiepoint": {"estimate": {"memory_fixed_bytes": 5}}, **json.loads(a_message())}
    ).encode()

    assert estimate_of(a_message(), KIND) == BIG
    assert estimate_of(a_message(estimate=None), KIND) == KIND.estimate
    assert estimate_of(moved, KIND) == Estimate(memory_fixed_bytes=5)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"headers": 1}', b'{"headers": {"estimate": "lots"}}'])
def test_what_cannot_be_read_is_no_waiting_job(payload: bytes) -> None:
    """It fails as soon as a node looks at it."""
    assert waiting_job(payload, KIND, None) is None


def test_a_jobs_name_is_what_the_user_calls_it() -> None:
    """Its item, where it has no other."""
    job = waiting_job(a_message("a"), KIND, 3.0)

    assert job is not None
    assert (job.name, job.project, job.waited_seconds) == ("a", "p", 3.0)


def test_behind_a_blocked_head_all_that_is_alike_is_found() -> None:
    """Of every project; nothing is looked at behind a head that is not blocked."""
    blocked = FakeQueue(a_message("a", project="q"), a_message("b"), a_message("c"))
    free = FakeQueue(a_message("a", estimate=None), a_message("b"))

    assert told(blocked) == [("p", 2), ("q", 1)]
    assert told(blocked, "p") == [("p", 2)]
    assert told(free) == []
    assert not free.looked_behind


def test_what_was_set_aside_is_blocked_when_it_has_waited() -> None:
    """Since when, the queue knows."""
    just_now = Parked(list="noop", payload=a_message(), since_ms=NOW_MS - 1000)
    long_ago = Parked(list="noop", payload=a_message("b"), since_ms=NOW_MS - 10_000)

    assert told(FakeQueue(large=[just_now])) == []
    assert told(FakeQueue(large=[just_now, long_ago])) == [("p", 1)]


def test_without_nodes_the_queue_is_not_looked_at() -> None:
    """Nothing can be compared."""
    queue: Any = None

    assert blocked_jobs(queue, {"noop": KIND}, []) == []
