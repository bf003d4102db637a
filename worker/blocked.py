"""Decides which waiting jobs are BLOCKED: no live node has room for them, whatever ends. Pure.

A job is BLOCKED in one of two ways. No live node could *ever* run it, judged
by what each offers when idle; told as soon as the job has waited for
IMPOSSIBLE_SECONDS, where it is known since when. Or some could, but all of
those have had nothing reserved for UNFIT_SECONDS and it still does not fit:
other programs hold the memory. What is unknown never blocks, and without a
live node there is nothing to compare with: then the project waits for one.

Does not cover which jobs are looked at (:mod:`worker.project_queue`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from governor.budget import Charge, charge_of
from governor.model import Estimate, Gpu
from governor.wording import in_binary_units
from worker.live_nodes import LiveNode

IMPOSSIBLE_SECONDS = 4.0
"""Set aside, looked at and told within 10 s all the same; a node that restarts may be back by then."""
UNFIT_SECONDS = 30.0


class Scarce(StrEnum):
    """What there is too little of."""

    GPU_SLOTS = "gpu_slots"
    GPU_MEMORY = "gpu_memory_bytes"
    MEMORY = "memory_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """One job that waits, as far as this decision needs it."""

    job_id: str
    kind: str
    project: str = ""
    name: str = ""
    """What the user calls its item."""
    estimate: Estimate
    needs_opencl: bool = False
    """Only nodes that can match on their GPU take it."""
    waited_seconds: float | None = None
    """None where it is not known since when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Why a job, and others like it, cannot run on any live node."""

    kind: str
    job_id: str
    name: str
    project: str
    scarce: Scarce
    needed: int
    """Bytes, or slots..."""
    offered: int
    """...and what the best node offers of it."""
    node: str
    """The best node."""
    is_impossible: bool
    """No live node could ever run it; else the best one could, but other programs hold what it needs."""
    jobs: int = 1
    """How many of those that were looked at are blocked by the same; this one needs the most."""

    @property
    def cause_key(self) -> tuple[str, ...]:
        """Return what those that are told as one have in common."""
        return (self.project, self.kind, self.scarce, "ever" if self.is_impossible else "now")

    def sentence(self) -> str:
        """Return e.g. "BLOCKED: matcher.run of a-b: needs 3.00 GiB, the best node (pc1) offers 512 MiB"."""
        of = f" of {self.name}" if self.name else ""
        others = f" and {self.jobs - 1} more jobs" if self.jobs > 1 else ""
        return f"BLOCKED: {self.kind}{of}{others}: {self.cause()}"

    def cause(self) -> str:
        """Return e.g. "needs 3.00 GiB, the best node (pc1) offers 512 MiB"."""
        needed = _needed(self.scarce, self.needed)
        if self.scarce is Scarce.GPU_SLOTS:
            return f"needs {needed}, the best node ({self.node}) offers none: no live node has one it can use"
        offered = in_binary_units(self.offered)
        line = f"needs {needed}, the best node ({self.node}) offers {offered}"
        if self.is_impossible:
            return line
        return f"{line} now, though it runs nothing: other programs hold the rest"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of it."""
        return {**asdict(self), "scarce": str(self.scarce), "sentence": self.sentence()}


def blocked(job: WaitingJob, nodes: Sequence[LiveNode]) -> Blocked | None:
    """Return why a job is blocked; None where it is not, or not for long enough."""
    could, impossible = _sift(job, nodes, _offered_ever)
    if impossible is not None:
        return impossible if _waited(job, IMPOSSIBLE_SECONDS) else None
    if not could or any(node.idle_seconds < UNFIT_SECONDS for node in could):
        return None
    _, unfit = _sift(job, could, _offered_now)
    has_waited = _waited(job, UNFIT_SECONDS)
    if job.waited_seconds is None:
        has_waited = any(node.waits_seconds >= UNFIT_SECONDS for node in could)
    return unfit if has_waited else None


def gathered(found: Iterable[Blocked]) -> list[Blocked]:
    """Return one for each project, kind and cause: the one that needs the most, with how many there are."""
    groups: dict[tuple[str, ...], list[Blocked]] = {}
    for one in found:
        groups.setdefault(one.cause_key, []).append(one)
    return [_largest(group) for _, group in sorted(groups.items())]


def _largest(group: Sequence[Blocked]) -> Blocked:
    largest = asdict(max(group, key=lambda one: one.needed))
    return Blocked(**(largest | {"jobs": len(group)}))


def _waited(job: WaitingJob, seconds: float) -> bool:
    return job.waited_seconds is None or job.waited_seconds >= seconds


_Offer = Callable[[LiveNode, Scarce], int | None]


def _sift(
    job: WaitingJob, nodes: Sequence[LiveNode], offered: _Offer
) -> tuple[list[LiveNode], Blocked | None]:
    """Keep the nodes that have enough of everything; where none is left, say what the last ones lack.

    In this order, so that a node counts only by what it has beside a GPU
    where one is needed.
    """
    left = list(nodes)
    for scarce in Scarce:
        enough = [node for node in left if _has_enough(job, node, scarce, offered)]
        if left and not enough:
            return [], _lacking(job, left, scarce, offered)
        left = enough
    return left, None


def _has_enough(job: WaitingJob, node: LiveNode, scarce: Scarce, offered: _Offer) -> bool:
    if scarce is Scarce.GPU_SLOTS and job.needs_opencl and not node.gpu_matching:
        return False
    offer = offered(node, scarce)
    return offer is None or _need(job.estimate, node, scarce) <= offer


def _lacking(job: WaitingJob, nodes: Sequence[LiveNode], scarce: Scarce, offered: _Offer) -> Blocked:
    def lead(node: LiveNode) -> int:
        return (offered(node, scarce) or 0) - _need(job.estimate, node, scarce)

    best = max(nodes, key=lead)
    return Blocked(
        kind=job.kind,
        job_id=job.job_id,
        name=job.name,
        project=job.project,
        scarce=scarce,
        needed=_need(job.estimate, best, scarce),
        # With less than one slot there is none, and one that cannot be used is none either.
        offered=0 if scarce is Scarce.GPU_SLOTS else offered(best, scarce) or 0,
        node=best.name,
        is_impossible=offered is _offered_ever,
    )


def _need(estimate: Estimate, node: LiveNode, scarce: Scarce) -> int:
    """Return what the smallest batch is charged there: one slot is enough to start with."""
    if scarce is Scarce.GPU_SLOTS:
        return min(1, estimate.gpu_slots)
    charge = _charge(estimate, node)
    need = charge.memory if scarce is Scarce.MEMORY else charge.gpu_memory
    return need.bytes_for(estimate.min_batch)


def _charge(estimate: Estimate, node: LiveNode) -> Charge:
    gpu = Gpu(index=0, name=node.gpu, is_uma=node.gpu_is_uma) if node.gpu or node.gpu_is_uma else None
    return charge_of(estimate, gpu)


def _offered_ever(node: LiveNode, scarce: Scarce) -> int | None:
    match scarce:
        case Scarce.GPU_SLOTS:
            return node.offers_gpu_slots
        case Scarce.GPU_MEMORY:
            return node.offers_gpu_memory_bytes
        case Scarce.MEMORY:
            return node.offers_memory_bytes


def _offered_now(node: LiveNode, scarce: Scarce) -> int | None:
    match scarce:
        case Scarce.GPU_SLOTS:
            return node.budget_gpu_slots
        case Scarce.GPU_MEMORY:
            return node.budget_gpu_memory_bytes
        case Scarce.MEMORY:
            return node.budget_memory_bytes


def _needed(scarce: Scarce, amount: int) -> str:
    match scarce:
        case Scarce.GPU_SLOTS:
            return "a GPU"
        case Scarce.GPU_MEMORY:
            return f"{in_binary_units(amount, rounded_up=True)} of GPU memory"
        case Scarce.MEMORY:
            return in_binary_units(amount, rounded_up=True)
