"""Says where one job is and why: in which list, on which node, what it needs, what the nodes decided.

Looks wherever a job can be, by its id. Does not cover projects
(:mod:`worker.explanation`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from governor.model import Estimate
from governor.wording import in_binary_units
from tasks.kind import Kind
from worker import keys
from worker.blocked import Blocked, blocked
from worker.explanation import Explanation, best_offer
from worker.live_nodes import LiveNode
from worker.project_queue import Parked, ProjectQueue, headers_of, queue_errors
from worker.trace_command import Answer
from worker.waiting_jobs import estimate_of, waiting_job

_CLASS_OF_PRIORITY = {0: "protected", 3: "high", 6: "best effort", 9: "lowest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What the nodes themselves can be asked; whoever does not answer in time is missing."""

    started_at: Callable[[str], float | None] = lambda _job_id: None
    """Since when one of them runs a job, in seconds since 1970."""
    decisions: Callable[[str, int], list[Answer]] = lambda _kind, _alive: []
    """The last decision of each for a kind; told how many are alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    job_id: str
    queue: ProjectQueue
    kinds: Mapping[str, Kind]
    nodes: Nodes

    def is_it(self, payload: bytes) -> bool:
        return self.job_id.encode() in payload and headers_of(payload).get("id") == self.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A job's message, where it is, and what there is to tell of it."""

    state: str
    payload: bytes
    sentences: Sequence[str]
    facts: Mapping[str, Any] = field(default_factory=dict)


def explain_job(
    job_id: str, queue: ProjectQueue, kinds: Mapping[str, Kind], nodes: Nodes | None = None
) -> Explanation:
    """Look for a job wherever one can be.

    Raises:
        QueueError: the queue does not answer.
    """
    search = _Search(job_id=job_id, queue=queue, kinds=kinds, nodes=nodes or Nodes())
    with queue_errors():
        # Twice, in the direction in which jobs move: one that has just moved on is found again.
        for _ in range(2):
            for found in _places(search):
                return _of_job(search, found)
            for failed in _failed(search):
                return failed
    sentence = (
        "the store holds no project of this name, and no job of this id waits, runs or has failed: "
        "it is done, or was never sent; `tiepoint status` lists the projects"
    )
    return Explanation(subject=job_id, state="unknown", sentences=(sentence,), facts={})


def _places(search: _Search) -> Iterator[_Found]:
    yield from _delayed(search)
    for kind in search.kinds.values():
        yield from _waiting(search, kind)
        yield from _large(search, kind)
    yield from _claimed(search)


def _delayed(search: _Search) -> Iterator[_Found]:
    for parked in search.queue.parked_in(keys.DELAYED):
        if search.is_it(parked.payload):
            seconds = max(0.0, (parked.score - search.queue.server_ms()) / 1000)
            sentence = f"it is parked for another {seconds:.1f} s, then it goes back to its list"
            yield _Found(
                state="delayed",
                payload=parked.payload,
                sentences=[sentence],
                facts={"due_in_seconds": seconds},
            )


def _waiting(search: _Search, kind: Kind) -> Iterator[_Found]:
    for name in keys.queue_lists(kind.name):
        for place, payload in enumerate(search.queue.waiting_in(name)):
            if search.is_it(payload):
                length, priority = search.queue.length(name), keys.priority_of_list(name)
                message_class = headers_of(payload).get("class") or _CLASS_OF_PRIORITY[priority or 6]
                sentence = (
                    f"it waits in {kind.name} (class {str(message_class).replace('_', ' ')}) "
                    f"behind {place} of {length} jobs"
                )
                facts = {"list": kind.name, "class": message_class, "position": place, "length": length}
                yield _where_it_waits(
                    search, kind, "waiting", Parked(list=name, payload=payload), [sentence], facts
                )


def _large(search: _Search, kind: Kind) -> Iterator[_Found]:
    for parked in search.queue.parked_in(keys.large(kind.name)):
        if search.is_it(parked.payload):
            charged_bytes = int(parked.score)
            needs = in_binary_units(charged_bytes, rounded_up=True)
            sentence = f"it was set aside as large: it needs {needs}; {best_offer(search.queue.nodes())}"
            facts = {"list": kind.name, "needed_memory_bytes": charged_bytes}
            yield _where_it_waits(search, kind, "large", parked, [sentence] if charged_bytes else [], facts)


def _where_it_waits(
    search: _Search, kind: Kind, state: str, parked: Parked, sentences: list[str], facts: dict[str, Any]
) -> _Found:
    """Add what the job needs, whether any node has that, and what the nodes last decided for its kind."""
    nodes = search.queue.nodes()
    estimate = estimate_of(parked.payload, kind)
    if estimate is not None:
        sentences, facts = [*sentences, _needs(estimate)], {**facts, "needs": _needs_facts(estimate)}
    why = _blocked(search, kind, parked, nodes)
    if why is not None:
        state, sentences, facts = "blocked", [*sentences, why.sentence()], {**facts, "blocked": why.to_dict()}
    answers = search.nodes.decisions(kind.name, len(nodes))
    told = [(answer.node, answer.decisions[0]) for answer in answers if answer.decisions]
    return _Found(
        state=state,
        payload=parked.payload,
        sentences=[*sentences, *(_decided(node, decision) for node, decision in told)],
        facts={**facts, "last_decisions": [{"node": node, **decision} for node, decision in told]},
    )


def _blocked(search: _Search, kind: Kind, parked: Parked, nodes: list[LiveNode]) -> Blocked | None:
    since_ms = search.queue.since_ms(kind.name, parked.entry) if parked.entry else None
    waited_seconds = None if since_ms is None else max(0, search.queue.server_ms() - since_ms) / 1000
    job = waiting_job(parked.payload, kind, waited_seconds)
    return None if job is None else blocked(job, nodes)


def _needs(estimate: Estimate) -> str:
    """Return e.g. "it needs 3.00 GiB, a GPU and 640 KiB of its memory"."""
    batch = estimate.min_batch
    memory = in_binary_units(estimate.memory_bytes(batch), rounded_up=True)
    gpu_bytes = estimate.gpu_memory_fixed_bytes + batch * estimate.gpu_memory_per_item_bytes
    gpu = (
        f", a GPU and {in_binary_units(gpu_bytes, rounded_up=True)} of its memory"
        if estimate.gpu_slots
        else ""
    )
    who = "it needs" if batch == 1 else f"the smallest batch, {batch}, needs"
    return f"{who} {memory}{gpu}"


def _needs_facts(estimate: Estimate) -> dict[str, int]:
    batch = estimate.min_batch
    return {
        "memory_bytes": estimate.memory_bytes(batch),
        "gpu_memory_bytes": estimate.gpu_memory_fixed_bytes + batch * estimate.gpu_memory_per_item_bytes,
        "gpu_slots": estimate.gpu_slots,
        "io_slots": estimate.io_slots,
        "cpu_threads": estimate.cpu_threads,
    }


def _decided(node: str, decision: Mapping[str, Any]) -> str:
    kind, age_seconds, sentence = (decision[name] for name in ("kind", "age_seconds", "sentence"))
    return f"node {node} decided for {kind} {age_seconds:.1f} s ago: {sentence}"


def _claimed(search: _Search) -> Iterator[_Found]:
    for node, payload in search.queue.held():
        if search.is_it(payload):
            started = search.nodes.started_at(search.job_id)
            since = datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds") if started else None
            sentence = f"node {node} has claimed it, and " + (
                f"has run it since {since}" if since else "has not said since when it runs"
            )
            yield _Found(
                state="claimed", payload=payload, sentences=[sentence], facts={"node": node, "since": since}
            )


def _failed(search: _Search) -> Iterator[Explanation]:
    for job in search.queue.dead():
        if job.job_id == search.job_id:
            again = "" if job.retry_problem() else f" `tiepoint retry {search.job_id}` tries it again."
            why = f"it has failed: {job.cause.rstrip('.')}. {job.cure}{again}"
            sentences = (why, f"{job.sentence()}{job.when()}")
            yield Explanation(
                subject=search.job_id, state="failed", sentences=sentences, facts={"job": job.to_dict()}
            )


def _of_job(search: _Search, found: _Found) -> Explanation:
    headers = headers_of(found.payload)
    names = ("task", "project", "stage", "item", "name")
    job = {name: headers[name] for name in names if headers.get(name)}
    called = job.get("name") or job.get("item")
    what = f"{job.get('task', 'job')}" + (f" of {called}" if called else "")
    of_project = f" in project {job['project']}" if "project" in job else ""
    return Explanation(
        subject=search.job_id,
        state=found.state,
        sentences=(f"{what}{of_project}", *found.sentences),
        facts={"job": job, **found.facts},
    )
