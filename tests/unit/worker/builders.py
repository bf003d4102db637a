"""Builds what the worker's tests are made of: jobs, claimed messages, kinds, stand-ins for Celery."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from governor.model import Estimate, Grant
from tasks.kind import Done, Job, Kind, Outcome, Payload
from tasks.store import Store
from worker.claim import Claimed, Head
from worker.claimed_item import ClaimedItem, LeaseChannel, read_item
from worker.dead_jobs import DeadJob
from worker.envelope import to_message

KIND = "noop"
GRANT = Grant(batch=4, cpu_threads=1, memory_bytes=1000, io_slots=1)
SEPARATOR = "\x06\x16"


class NumberPayload(Payload):
    """One number."""

    number: int = 0


def all_done(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
    """Finish every payload."""
    yield from (Done() for _ in payloads)


def a_kind(run: Callable[..., Iterator[Outcome]] = all_done, **changes: Any) -> Kind:
    """Build a kind of batches of up to four."""
    values: dict[str, Any] = {
        "name": KIND,
        "version": 1,
        "stage": "match",
        "estimate": Estimate(memory_fixed_bytes=2000, memory_per_item_bytes=2000, max_batch=4),
        "payload": NumberPayload,
        "run": run,
    }
    return Kind(**(values | changes))


def a_job(item: str = "a", **changes: Any) -> Job:
    """Build a job of a project."""
    values: dict[str, Any] = {
        "kind": KIND,
        "payload": {"number": 1},
        "project": "p",
        "stage": "match",
        "item": item,
    }
    return Job(**(values | changes))


def a_dead_job(**told: Any) -> DeadJob:
    """Build a failed job as it is read; what is not told is unknown."""
    report = {"kind": KIND, "job_id": "7", "cause": "torn.", "cure": "Copy it again."}
    return DeadJob.from_text(json.dumps(report | told).encode())


def a_head(**changes: Any) -> Head:
    """Build what waits in the kind's first list."""
    values: dict[str, Any] = {
        "kind": KIND,
        "source": KIND,
        "is_large": False,
        "count": 1,
        "estimate_text": "",
        "mark": "ok",
        "priority": 6,
    }
    return Head(**(values | changes))


class FakeRequest:
    """What a batch needs of Celery's request; remembers what it was told."""

    time_limits: tuple[float | None, float | None] = (None, None)
    """Hard and soft, as its sender said."""
    task = SimpleNamespace(time_limit=90.0, soft_time_limit=60.0)

    def __init__(self, job_id: str, kwargs: dict[str, Any]) -> None:
        self.id = job_id
        self.name = KIND
        self.kwargs = kwargs
        self.acknowledged = False
        self.told: list[str] = []

    def on_accepted(self, pid: int, _time_accepted: float) -> None:
        """Remember the process."""
        self.told.append(f"accepted by {pid}")

    def on_success(self, result: tuple[bool, object, float]) -> None:
        """Remember the success, as Celery's own form of it."""
        failed, _, seconds = result
        if not failed and seconds >= 0:
            self.told.append("succeeded")

    def send_event(self, name: str, **_fields: Any) -> None:
        """Remember the event."""
        self.told.append(name)


def a_claimed(
    item: str = "a",
    *,
    attempts: int = 0,
    lost: int = 0,
    moved: Estimate | None = None,
    last_end: dict[str, Any] | None = None,
    **changes: Any,
) -> Claimed:
    """Build a claimed message of a job, with its history."""
    history: dict[str, Any] = {
        "attempts": attempts,
        "lost": lost,
        "estimate": {} if moved is None else asdict(moved),
    }
    if last_end is not None:
        history["last_end"] = last_end
    fields = {"tiepoint": history, **json.loads(to_message(a_job(item, **changes)))}
    return Claimed(tag=f"000000000001:0001:{item}", payload=json.dumps(fields).encode())


def an_item(item: str = "a", *, attempts: int = 0, estimate: Estimate | None = None) -> ClaimedItem:
    """Build a claimed item that Celery has received; a node has moved it to ``estimate``, if any."""
    claimed = read_item(a_claimed(item, attempts=attempts, moved=estimate), LeaseChannel(lambda _tag: None))
    claimed.request = FakeRequest(claimed.job_id, {"number": 1})
    return claimed
