"""Reads the messages that wait first in a cluster's queues as jobs, and which of them are BLOCKED.

Looks at the heads of lists and at the ends of large sets, never at whole
queues: what a bounded look does not reach is told when its turn comes. Does
not decide what is blocked (:mod:`worker.blocked`).
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice

from governor.model import Estimate
from tasks.kind import Kind
from worker.blocked import Blocked, WaitingJob, blocked, gathered
from worker.live_nodes import LiveNode
from worker.project_queue import Parked, ProjectQueue, headers_of, queue_errors

_LOOK_BEHIND = 200
"""Messages behind a blocked head that are looked at, too: where no node takes from a list, they all stand."""


def estimate_of(payload: bytes, kind: Kind) -> Estimate | None:
    """Return what a message is admitted with; None where it cannot be read or the kind does not accept it."""
    try:
        message = json.loads(payload)
        moved = message.get("tiepoint", {}).get("estimate")
        sent = json.dumps(moved) if moved else message["headers"].get("estimate")
        return (
            kind.estimate if not sent else kind.estimate_for(Estimate.from_header(sent), is_moved=bool(moved))
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def waiting_job(payload: bytes, kind: Kind, waited_seconds: float | None) -> WaitingJob | None:
    """Return a message as a job that waits; None where it cannot be: it fails as soon as it is looked at."""
    estimate, headers = estimate_of(payload, kind), headers_of(payload)
    if estimate is None or not estimate.is_valid():
        return None
    return WaitingJob(
        job_id=str(headers.get("id", "")),
        kind=kind.name,
        project=str(headers.get("project") or ""),
        name=str(headers.get("name") or headers.get("item") or ""),
        estimate=estimate,
        needs_opencl=kind.needs_opencl,
        waited_seconds=waited_seconds,
    )


def blocked_jobs(
    queue: ProjectQueue, kinds: Mapping[str, Kind], nodes: list[LiveNode], project: str | None = None
) -> list[Blocked]:
    """Return what is blocked of all projects, or of one: one for each project, kind and cause.

    Raises:
        QueueError: the queue does not answer.
    """
    if not nodes:
        return []
    found = {
        why.job_id: why
        for why in _blocked_in(queue, kinds, nodes)
        if project is None or why.project == project
    }
    return gathered(found.values())


def _blocked_in(queue: ProjectQueue, kinds: Mapping[str, Kind], nodes: list[LiveNode]) -> Iterator[Blocked]:
    now_ms = queue.server_ms()
    for first in queue.first_waiting(list(kinds)):
        kind = kinds[first.kind]
        why = _judged(first, kind, nodes, now_ms)
        if why is None:
            continue
        yield why
        if first.is_head:
            yield from filter(None, (_judged(one, kind, nodes, now_ms) for one in _behind(queue, first)))


def _behind(queue: ProjectQueue, head: Parked) -> list[Parked]:
    with queue_errors():
        payloads = islice(queue.waiting_in(head.list), 1, 1 + _LOOK_BEHIND)
        return [Parked(list=head.list, payload=payload) for payload in payloads]


def _judged(waiting: Parked, kind: Kind, nodes: list[LiveNode], now_ms: int) -> Blocked | None:
    waited_seconds = None if waiting.since_ms is None else max(0, now_ms - waiting.since_ms) / 1000
    job = waiting_job(waiting.payload, kind, waited_seconds)
    return None if job is None else blocked(job, nodes)
