"""Says where a project is, and why, from the queue alone.

Does not cover what the store holds of a project (:mod:`tasks.summary`), nor
single jobs (:mod:`worker.job_explanation`).
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from governor.wording import in_binary_units
from tasks.kind import Kind
from worker import keys
from worker.dead_jobs import DeadJob
from worker.live_nodes import LiveNode
from worker.project_queue import ProjectQueue, headers_of, queue_errors
from worker.project_state import ProjectState, StageProgress
from worker.waiting_jobs import blocked_jobs

_MOST_FAILED_JOBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where something is and why: sentences for people, facts for programs."""

    subject: str
    state: str
    """Of a job: ``waiting``, ``large``, ``blocked`` (no live node has room for it), ``delayed``, ``claimed``,
    ``failed``, ``unknown``; of a project as :class:`worker.project_state.ProjectState` has it: one with
    blocked jobs is running, for others of it may go on."""
    sentences: tuple[str, ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``tiepoint explain --json`` prints."""
        return {"subject": self.subject, "state": self.state, "sentences": list(self.sentences), **self.facts}


def explain_project(
    project_id: str,
    queue: ProjectQueue,
    kinds: Mapping[str, Kind],
    failed_items: Container[tuple[str, str]],
) -> Explanation:
    """Say what a project does, what it waits for, and which nodes there are.

    ``failed_items`` are the stage and item of each failure that the store
    holds: the queue remembers jobs that have been tried again since.

    Raises:
        QueueError: the queue does not answer.
    """
    state, nodes = queue.state(project_id), queue.nodes()
    with queue_errors():
        large_bytes = _set_aside_bytes(project_id, queue, kinds)
    blocked = blocked_jobs(queue, kinds, nodes, project_id) if state.state == "running" else []
    failed = _failed_jobs(project_id, queue, failed_items)
    sentences = [
        _standing(state),
        *(_progress(name, stage) for name, stage in state.stages.items() if name != "plan"),
        *(one.sentence() for one in blocked),
        *hindrances(state, nodes),
        *_too_large(large_bytes, nodes),
        *(f"job {job.job_id} has failed: {job.cause}" for job in failed),
    ]
    facts = {
        "phase": state.phase,
        "outstanding": state.outstanding,
        "stages": {name: stage.to_dict() for name, stage in state.stages.items()},
        "blocked": [one.to_dict() for one in blocked],
        "set_aside_bytes": large_bytes,
        "failed_jobs": [job.to_dict() for job in failed],
        "nodes": [node.to_dict() for node in nodes],
    }
    return Explanation(subject=project_id, state=state.state, sentences=tuple(sentences), facts=facts)


def _failed_jobs(
    project_id: str, queue: ProjectQueue, failed_items: Container[tuple[str, str]]
) -> list[DeadJob]:
    """Return the last report of each item that has failed, newest first, as many as are told."""
    last: dict[tuple[str, str], DeadJob] = {}
    for job in queue.dead():
        place = job.place
        if place is None or place.project != project_id or (place.stage, place.item) not in failed_items:
            continue
        last.setdefault((place.stage, place.item), job)
    return list(islice(last.values(), _MOST_FAILED_JOBS))


def hindrances(state: ProjectState, nodes: Sequence[LiveNode]) -> list[str]:
    """Return what keeps a running project from going on, node by node; nothing where all is well."""
    if state.state != "running":
        return []
    if not nodes:
        return [
            "no worker is connected: the project waits for one (tiepoint worker --broker URL --store DIR)"
        ]
    return [_node(node) for node in nodes]


def _node(node: LiveNode) -> str:
    work = node.waiting if node.waits_for else "works"
    free_bytes = max(0, node.budget_memory_bytes - node.reserved_memory_bytes)
    memory = f"{in_binary_units(free_bytes)} of {in_binary_units(node.budget_memory_bytes)}"
    free_threads = node.budget_cpu_threads - node.reserved_cpu_threads
    return f"node {node.name} {work} ({memory} and {free_threads} of {node.budget_cpu_threads} threads free)"


def _standing(state: ProjectState) -> str:
    if state.state == "unknown":
        return "the queue does not know it: it was not started here, or long ago; `tiepoint resume` starts it"
    if state.failure is not None:
        return f"planning has failed: {state.failure.cause.rstrip('.')}. {state.failure.cure}"
    if state.state == "running":
        return f"it is running, in the phase {state.phase or 'import'}, with {state.outstanding} jobs open"
    again = "; `tiepoint resume` goes on" if state.state == "cancelled" else ""
    return f"it is {state.state}{again}"


def _progress(name: str, stage: StageProgress) -> str:
    failed = f", {stage.failed} failed" if stage.failed else ""
    return f"{name}: {stage.done} of {stage.planned} planned jobs done{failed}"


def _set_aside_bytes(project_id: str, queue: ProjectQueue, kinds: Mapping[str, Kind]) -> list[int]:
    """Return what each job of a project needs that was set aside as large, largest first."""
    needs = [
        int(parked.score)
        for kind in kinds
        for parked in queue.parked_in(keys.large(kind))
        if headers_of(parked.payload).get("project") == project_id
    ]
    return sorted(needs, reverse=True)


def _too_large(needs_bytes: Sequence[int], nodes: Sequence[LiveNode]) -> list[str]:
    if not needs_bytes:
        return []
    count, most = len(needs_bytes), in_binary_units(needs_bytes[0], rounded_up=True)
    jobs = "one job was" if count == 1 else f"{count} jobs were"
    return [f"{jobs} set aside as large: up to {most} needed; {best_offer(nodes)}"]


def best_offer(nodes: Sequence[LiveNode]) -> str:
    """Say how much memory the roomiest node offers a job when nothing else runs on it."""
    if not nodes:
        return "no node is alive"
    best = max(nodes, key=_offered_bytes)
    return f"the best node ({best.name}) offers {in_binary_units(_offered_bytes(best))}"


def _offered_bytes(node: LiveNode) -> int:
    # A node of an older version tells only what its machine leaves now.
    return node.budget_memory_bytes if node.offers_memory_bytes is None else node.offers_memory_bytes
