"""Says where a project or a job is, and why, from the queue alone.

Does not cover what the store holds of a project (:mod:`tasks.summary`).
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from governor.wording import in_binary_units
from worker import keys
from worker.live_nodes import LiveNode
from worker.project_queue import ProjectQueue, headers_of, queue_errors
from worker.project_state import ProjectState, StageProgress

_CLASS_OF_PRIORITY = {0: "protected", 3: "high", 6: "best effort", 9: "lowest"}
_MOST_FAILED_JOBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where something is and why: sentences for people, facts for programs."""

    subject: str
    state: str
    """Of a job: ``waiting``, ``large``, ``delayed``, ``claimed``, ``failed``, ``unknown``; of a project
    as :class:`worker.project_state.ProjectState` has it."""
    sentences: tuple[str, ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``tiepoint explain --json`` prints."""
        return {"subject": self.subject, "state": self.state, "sentences": list(self.sentences), **self.facts}


# -- A job --------------------------------------------------------------------------------


def explain_job(
    job_id: str,
    queue: ProjectQueue,
    kinds: Sequence[str],
    started_at: Callable[[str], float | None] = lambda _job_id: None,
) -> Explanation:
    """Look for a job wherever one can be; ``started_at`` asks the nodes when it began (seconds since 1970).

    Raises:
        QueueError: the queue does not answer.
    """
    with queue_errors():
        # Twice, in the direction in which jobs move: one that has just moved on is found again.
        for _ in range(2):
            for found in _places(job_id, queue, kinds, started_at):
                return found
    sentence = (
        "the store holds no project of this name, and no job of this id waits, runs or has failed: "
        "it is done, or was never sent; `tiepoint status` lists the projects"
    )
    return Explanation(subject=job_id, state="unknown", sentences=(sentence,), facts={})


def _places(
    job_id: str, queue: ProjectQueue, kinds: Sequence[str], started_at: Callable[[str], float | None]
) -> Iterator[Explanation]:
    yield from _delayed(job_id, queue)
    for kind in kinds:
        yield from _waiting(job_id, queue, kind)
        yield from _large(job_id, queue, kind)
    yield from _claimed(job_id, queue, started_at)
    yield from _failed(job_id, queue)


def _is_job(payload: bytes, job_id: str) -> bool:
    return job_id.encode() in payload and headers_of(payload).get("id") == job_id


def _delayed(job_id: str, queue: ProjectQueue) -> Iterator[Explanation]:
    for payload, due_ms in queue.parked_in(keys.DELAYED):
        if _is_job(payload, job_id):
            seconds = max(0.0, (due_ms - queue.server_ms()) / 1000)
            sentence = f"it is parked for another {seconds:.1f} s, then it goes back to its list"
            yield _of_job(job_id, "delayed", payload, sentence, {"due_in_seconds": seconds})


def _waiting(job_id: str, queue: ProjectQueue, kind: str) -> Iterator[Explanation]:
    for name in keys.queue_lists(kind):
        for place, payload in enumerate(queue.waiting_in(name)):
            if _is_job(payload, job_id):
                length, priority = queue.length(name), keys.priority_of_list(name)
                message_class = headers_of(payload).get("class") or _CLASS_OF_PRIORITY[priority or 6]
                sentence = (
                    f"it waits in {kind} (class {str(message_class).replace('_', ' ')}) "
                    f"behind {place} of {length} jobs"
                )
                facts = {"list": kind, "class": message_class, "position": place, "length": length}
                yield _of_job(job_id, "waiting", payload, sentence, facts)


def _large(job_id: str, queue: ProjectQueue, kind: str) -> Iterator[Explanation]:
    for payload, needed_bytes in queue.parked_in(keys.large(kind)):
        if _is_job(payload, job_id):
            needs = in_binary_units(int(needed_bytes), rounded_up=True)
            sentence = f"it was set aside as large: it needs {needs}; {_best(queue.nodes())}"
            facts = {"list": kind, "needed_memory_bytes": int(needed_bytes)}
            yield _of_job(job_id, "large", payload, sentence, facts)


def _claimed(
    job_id: str, queue: ProjectQueue, started_at: Callable[[str], float | None]
) -> Iterator[Explanation]:
    for node, payload in queue.held():
        if _is_job(payload, job_id):
            started = started_at(job_id)
            since = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds") if started else None
            sentence = f"node {node} has claimed it, and " + (
                f"has run it since {since}" if since else "has not said since when it runs"
            )
            yield _of_job(job_id, "claimed", payload, sentence, {"node": node, "since": since})


def _failed(job_id: str, queue: ProjectQueue) -> Iterator[Explanation]:
    for report in queue.dead():
        if report.get("job_id") == job_id:
            again = f" `tiepoint retry {job_id}` tries it again." if report.get("project") else ""
            cause = str(report.get("cause", "")).rstrip(".")
            sentence = f"it has failed: {cause}. {report.get('cure', '')}{again}"
            yield Explanation(subject=job_id, state="failed", sentences=(sentence,), facts={"job": report})


def _of_job(job_id: str, state: str, payload: bytes, sentence: str, facts: dict[str, Any]) -> Explanation:
    headers = headers_of(payload)
    names = ("task", "project", "stage", "item", "name")
    job = {name: headers[name] for name in names if headers.get(name)}
    called = job.get("name") or job.get("item")
    what = f"{job.get('task', 'job')}" + (f" of {called}" if called else "")
    of_project = f" in project {job['project']}" if "project" in job else ""
    sentences = (f"{what}{of_project}", sentence)
    return Explanation(subject=job_id, state=state, sentences=sentences, facts={"job": job, **facts})


# -- A project ----------------------------------------------------------------------------


def explain_project(
    project_id: str, queue: ProjectQueue, kinds: Sequence[str], failed_items: Container[tuple[str, str]]
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
    failed = _failed_jobs(project_id, queue, failed_items)
    sentences = [
        _standing(state),
        *(_progress(name, stage) for name, stage in state.stages.items() if name != "plan"),
        *hindrances(state, nodes),
        *_too_large(large_bytes, nodes),
        *(f"job {report.get('job_id')} has failed: {report.get('cause')}" for report in failed),
    ]
    facts = {
        "phase": state.phase,
        "outstanding": state.outstanding,
        "stages": {name: asdict(stage) for name, stage in state.stages.items()},
        "set_aside_bytes": large_bytes,
        "failed_jobs": failed,
        "nodes": [asdict(node) for node in nodes],
    }
    return Explanation(subject=project_id, state=state.state, sentences=tuple(sentences), facts=facts)


def _failed_jobs(
    project_id: str, queue: ProjectQueue, failed_items: Container[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return the last report of each item that has failed, newest first, as many as are told."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for report in queue.dead():
        place = (str(report.get("stage")), str(report.get("item")))
        if report.get("project") == project_id and place in failed_items:
            last.setdefault(place, report)
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
    work = f"waits: {node.waits_for}" if node.waits_for else "works"
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


def _set_aside_bytes(project_id: str, queue: ProjectQueue, kinds: Sequence[str]) -> list[int]:
    """Return what each job of a project needs that was set aside as large, largest first."""
    needs = [
        int(needed_bytes)
        for kind in kinds
        for payload, needed_bytes in queue.parked_in(keys.large(kind))
        if headers_of(payload).get("project") == project_id
    ]
    return sorted(needs, reverse=True)


def _too_large(needs_bytes: Sequence[int], nodes: Sequence[LiveNode]) -> list[str]:
    if not needs_bytes:
        return []
    count, most = len(needs_bytes), in_binary_units(needs_bytes[0], rounded_up=True)
    jobs = "one job was" if count == 1 else f"{count} jobs were"
    return [f"{jobs} set aside as large: up to {most} needed; {_best(nodes)}"]


def _best(nodes: Sequence[LiveNode]) -> str:
    """Say what the roomiest node offers."""
    if not nodes:
        return "no node is alive"
    best = max(nodes, key=lambda node: node.budget_memory_bytes)
    return f"the best node ({best.name}) offers {in_binary_units(best.budget_memory_bytes)}"
