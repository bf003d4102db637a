"""A job's explanation says where it is, what it needs, whether it is blocked, and what the nodes decided."""

import json
from collections.abc import Iterator
from typing import cast

from governor.model import Estimate
from tests.unit.worker.builders import a_dead_job, a_job, a_kind
from worker import keys
from worker.dead_jobs import DeadJob
from worker.envelope import to_message
from worker.explanation import Explanation
from worker.job_explanation import Nodes, explain_job
from worker.live_nodes import LiveNode
from worker.project_queue import Parked, ProjectQueue
from worker.trace_command import Answer

GIB = 1 << 30
NOW_MS = 1_000_000
BIG = Estimate(memory_fixed_bytes=9 * GIB, gpu_slots=1, gpu_memory_fixed_bytes=GIB)
SMALL_NODE = LiveNode(name="attic", offers_memory_bytes=8 * GIB, offers_gpu_slots=1)
LARGE_NODE = LiveNode(name="cellar", offers_memory_bytes=9 * GIB, offers_gpu_slots=1)
DECISION = {"kind": "noop", "age_seconds": 0.4, "sentence": "REJECT IMPOSSIBLE_ON_NODE: needs 9.00 GiB"}


class FakeQueue:
    """A queue in which each place holds the messages that a test puts there."""

    def __init__(self, *nodes: LiveNode, **places: list[bytes]) -> None:
        self._nodes, self._places = list(nodes), places
        self.reports: list[DeadJob] = []

    def nodes(self) -> list[LiveNode]:
        """Return who is alive."""
        return self._nodes

    def waiting_in(self, name: str) -> Iterator[bytes]:
        """Yield the kind's first list."""
        yield from self._places.get("waiting", []) if name == "noop" else []

    def length(self, _name: str) -> int:
        """Return how long it is."""
        return len(self._places["waiting"])

    def parked_in(self, name: str) -> Iterator[Parked]:
        """Yield the large set, or what is delayed by 2 s."""
        place, score = ("delayed", NOW_MS + 2000) if name == keys.DELAYED else ("large", 9 * GIB)
        for payload in self._places.get(place, []):
            yield Parked(list="noop", payload=payload, entry=b"entry", score=score)

    def since_ms(self, _kind: str, _entry: bytes) -> int:
        """Return since when it waits: a minute."""
        return NOW_MS - 60_000

    def server_ms(self) -> int:
        """Return the server's time."""
        return NOW_MS

    def held(self) -> Iterator[tuple[str, bytes]]:
        """Yield what the node has claimed."""
        yield from (("attic", payload) for payload in self._places.get("claimed", []))

    def dead(self) -> Iterator[DeadJob]:
        """Yield the failed jobs."""
        yield from self.reports


def a_message(estimate: Estimate | None = BIG) -> tuple[str, bytes]:
    """Return a job's id and its message."""
    text = to_message(a_job("a", name="a.jpg", estimate=estimate))
    return json.loads(text)["headers"]["id"], text.encode()


def explained(job_id: str, queue: FakeQueue, nodes: Nodes | None = None) -> Explanation:
    """Explain a job."""
    return explain_job(job_id, cast("ProjectQueue", queue), {"noop": a_kind()}, nodes)


def test_a_waiting_job_tells_its_place_and_its_needs() -> None:
    """GPU and all."""
    job_id, payload = a_message()
    told = explained(job_id, FakeQueue(LARGE_NODE, waiting=[a_message()[1], payload]))

    assert told.state == "waiting"
    assert told.sentences == (
        "noop of a.jpg in project p",
        "it waits in noop (class best effort) behind 1 of 2 jobs",
        "it needs 9.00 GiB, a GPU and 1.00 GiB of its memory",
    )
    assert (told.facts["needs"]["gpu_slots"], told.facts["needs"]["memory_bytes"]) == (1, 9 * GIB)


def test_a_job_that_no_node_has_room_for_is_blocked() -> None:
    """Wherever it waits; a larger node unblocks it."""
    job_id, payload = a_message()
    blocked = explained(job_id, FakeQueue(SMALL_NODE, large=[payload]))

    assert blocked.state == "blocked"
    assert blocked.sentences[-1].endswith("needs 9.00 GiB, the best node (attic) offers 8.00 GiB")
    assert json.loads(json.dumps(blocked.to_dict()))["blocked"]["needed"] == 9 * GIB
    assert explained(job_id, FakeQueue(SMALL_NODE, LARGE_NODE, large=[payload])).state == "large"


def test_each_node_tells_its_last_decision_for_the_kind() -> None:
    """Those that have decided something for it."""
    job_id, payload = a_message()
    answers = [Answer(node="attic", decisions=(DECISION,)), Answer(node="cellar", decisions=())]
    nodes = Nodes(decisions=lambda kind, alive: answers if (kind, alive) == ("noop", 1) else [])
    told = explained(job_id, FakeQueue(SMALL_NODE, waiting=[payload]), nodes)

    assert told.sentences[-1] == f"node attic decided for noop 0.4 s ago: {DECISION['sentence']}"
    assert told.facts["last_decisions"] == [{"node": "attic", **DECISION}]


def test_a_claimed_job_tells_its_node_and_since_when() -> None:
    """As that node says."""
    job_id, payload = a_message()
    told = explained(job_id, FakeQueue(claimed=[payload]), Nodes(started_at=lambda _job: 0.0 + 60))

    assert (told.state, told.facts["node"], told.facts["since"]) == (
        "claimed",
        "attic",
        "1970-01-01T00:01:00+00:00",
    )


def test_a_parked_job_tells_for_how_long() -> None:
    """By the server's clock."""
    job_id, payload = a_message()
    told = explained(job_id, FakeQueue(delayed=[payload]))

    assert (told.state, told.facts["due_in_seconds"]) == ("delayed", 2.0)


def test_a_failed_job_tells_cause_and_cure() -> None:
    """And how to try it again, where and with how much memory it ended, and when."""
    queue = FakeQueue()
    ended = {"ending": "out_of_memory", "node": "attic", "reserved_bytes": 2 * GIB, "peak_bytes": 3 * GIB}
    queue.reports = [a_dead_job(**ended, attempts=3, at_ms=1_796_000_000_000)]
    told = explained("7", queue)

    assert told.state == "failed"
    why, how = told.sentences
    assert why == "it has failed: torn. Copy it again. `tiepoint retry 7` tries it again."
    assert how.startswith("out of memory on node attic after 3 attempts, with 2.00 GiB reserved and at least")
    assert how.endswith("3.00 GiB in use, at 2026-11-30T00:53:20+00:00")
    assert (told.facts["job"]["ending"], told.facts["job"]["peak_bytes"]) == ("out_of_memory", 3 * GIB)


def test_of_a_revoked_job_no_retry_is_promised() -> None:
    """Workers refuse its id; but the item of a project is planned under another."""
    queue, place = FakeQueue(), {"project": "p", "stage": "match", "item": "a"}
    queue.reports = [
        a_dead_job(job_id="7", ending="cancelled"),
        a_dead_job(job_id="8", ending="cancelled", **place),
    ]

    assert ["retry" in explained(job_id, queue).sentences[0] for job_id in ("7", "8")] == [False, True]


def test_a_job_that_is_nowhere_is_unknown() -> None:
    """It is done, or was never sent."""
    assert explained("7", FakeQueue()).state == "unknown"
