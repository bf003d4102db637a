"""Decides how large an admissible request may be: batch, threads, slots. Pure.

Refusals that need no size are in ``governor.admission``.
"""

from dataclasses import dataclass

from governor.history import adapted_batch
from governor.model import Decision, DecisionReason, Verdict
from governor.request import Case
from governor.wording import grant_line, memory_line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The largest batch by each rule; the smallest of them is granted."""

    memory: int
    history: int
    pressure: int
    share: int

    @property
    def batch(self) -> int:
        return min(self.memory, self.history, self.pressure, self.share)


def size(case: Case) -> Decision:
    """Grant the largest batch that every rule allows, or say what it waits for."""
    cap = case.pressure.growth_cap
    if cap is not None and cap < case.min_batch:
        detail = f"the smallest batch is {case.min_batch}, at most {cap} after memory pressure"
        return _wait(case, DecisionReason.PRESSURE_CAP, detail)
    memory = _memory_bound(case)
    if memory < case.min_batch:
        return _wait(case, DecisionReason.INSUFFICIENT_MEMORY, _shortage(case))
    busy = _busy(case)
    if busy is not None:
        return _wait(case, DecisionReason.SLOTS_BUSY, busy)
    return _grant(case, _bounds(case, memory))


def _memory_bound(case: Case) -> int:
    return min(
        case.charge.memory.largest_batch(case.free.memory_bytes, case.max_batch),
        case.charge.gpu_memory.largest_batch(case.free.gpu_memory_bytes or 0, case.max_batch),
    )


def _bounds(case: Case, memory: int) -> _Bounds:
    history = adapted_batch(case.request.estimate, case.charge.memory, case.situation.history)
    return _Bounds(
        memory=memory,
        history=history,
        pressure=_pressure_bound(case, min(memory, history)),
        share=_share_bound(case),
    )


def _pressure_bound(case: Case, batch: int) -> int:
    """Cap the batch; halve it while a signal stands (never below the minimum)."""
    cap = case.pressure.growth_cap
    bound = case.max_batch if cap is None else min(cap, case.max_batch)
    if case.pressure.halves_batches:
        return max(case.min_batch, min(bound, batch) // 2)
    return bound


def _share_bound(case: Case) -> int:
    """Spread the last items of a stage over the nodes, and over the cores if each job has one thread."""
    waiting_items = case.request.waiting_items
    if waiting_items is None:
        return case.max_batch
    is_single_threaded = case.request.estimate.cpu_threads == 1
    places = max(1, case.request.nodes) * (max(1, case.free.cpu_threads) if is_single_threaded else 1)
    return max(case.min_batch, _ceil_divide(waiting_items, places))


def _grant(case: Case, bounds: _Bounds) -> Decision:
    batch, charge, free = bounds.batch, case.charge, case.free
    cpu_threads = _threads(case, batch)
    shortage = _shortage_reason(case, bounds, cpu_threads)
    needed_bytes = charge.memory.bytes_for(batch)
    return Decision(
        verdict=Verdict.START if shortage is None else Verdict.REDUCE,
        reason=shortage or _start_reason(case, bounds, cpu_threads),
        detail=grant_line(batch, cpu_threads, needed_bytes, free.memory_bytes),
        batch=batch,
        cpu_threads=cpu_threads,
        gpu_slots=min(case.request.estimate.gpu_slots, free.gpu_slots),
        io_slots=min(case.request.estimate.io_slots, free.io_slots),
        needed_memory_bytes=needed_bytes,
        available_memory_bytes=free.memory_bytes,
        needed_gpu_memory_bytes=charge.gpu_memory.bytes_for(batch),
        available_gpu_memory_bytes=free.gpu_memory_bytes,
    )


def _threads(case: Case, batch: int) -> int:
    """Share the free threads among the batches like this one that could run now."""
    share = _ceil_divide(case.free.cpu_threads, _batches_alike(case, batch))
    return max(1, min(share, case.request.estimate.cpu_threads))


def _batches_alike(case: Case, batch: int) -> int:
    """Return how many batches like this one the node's share of the items fill and it could run now."""
    if case.request.waiting_items is None:
        return 1
    shared_out = batch * max(1, case.request.nodes)
    estimate, free = case.request.estimate, case.free
    wishes_and_free = (
        (case.charge.memory.bytes_for(batch), free.memory_bytes),
        (case.charge.gpu_memory.bytes_for(batch), free.gpu_memory_bytes or 0),
        (estimate.gpu_slots, free.gpu_slots),
        (estimate.io_slots, free.io_slots),
    )
    fitting = [amount // wish for wish, amount in wishes_and_free if wish > 0]
    alike = min([_ceil_divide(case.request.waiting_items, shared_out), *fitting])
    return max(1, min(alike, free.cpu_threads))


def _shortage_reason(case: Case, bounds: _Bounds, cpu_threads: int) -> DecisionReason | None:
    """Tell what was short of the wish; lowered by history, pressure or sharing alone is None."""
    estimate, free = case.request.estimate, case.free
    if bounds.memory < case.max_batch and bounds.batch < _bounds(case, memory=case.max_batch).batch:
        return DecisionReason.LIMITED_BY_MEMORY
    if cpu_threads == free.cpu_threads < estimate.cpu_threads:
        return DecisionReason.LIMITED_BY_THREADS
    if free.gpu_slots < estimate.gpu_slots or free.io_slots < estimate.io_slots:
        return DecisionReason.LIMITED_BY_SLOTS
    return None


def _start_reason(case: Case, bounds: _Bounds, cpu_threads: int) -> DecisionReason:
    batch, max_batch = bounds.batch, case.max_batch
    if batch < max_batch and bounds.pressure == batch:
        return DecisionReason.LIMITED_BY_PRESSURE
    if batch < max_batch and bounds.history == batch:
        return DecisionReason.LIMITED_BY_HISTORY
    if batch < max_batch or cpu_threads < case.request.estimate.cpu_threads:
        return DecisionReason.LIMITED_BY_SHARING
    return DecisionReason.IN_FULL


def _busy(case: Case) -> str | None:
    """Return the first thing of which not even one is free."""
    estimate = case.request.estimate
    wished_free_and_total = (
        ("CPU thread", 1, case.free.cpu_threads, case.budget.cpu_threads),
        ("GPU slot", estimate.gpu_slots, case.free.gpu_slots, case.budget.gpu_slots),
        ("IO slot", estimate.io_slots, case.free.io_slots, case.budget.io_slots),
    )
    for name, wished, free, total in wished_free_and_total:
        if wished > 0 and free == 0:
            return f"no {name} free, all {total} reserved"
    return None


def _shortage(case: Case) -> str:
    gpu_needed_bytes = case.charge.gpu_memory.bytes_for(case.min_batch)
    memory_needed_bytes = case.charge.memory.bytes_for(case.min_batch)
    if memory_needed_bytes > case.free.memory_bytes:
        return memory_line(memory_needed_bytes, case.free.memory_bytes, case.budget.memory_bytes)
    return memory_line(
        gpu_needed_bytes, case.free.gpu_memory_bytes or 0, case.budget.gpu_memory_bytes or 0, of_gpu=True
    )


def _wait(case: Case, reason: DecisionReason, detail: str) -> Decision:
    return Decision(
        verdict=Verdict.WAIT,
        reason=reason,
        detail=detail,
        needed_memory_bytes=case.charge.memory.bytes_for(case.min_batch),
        available_memory_bytes=case.free.memory_bytes,
        needed_gpu_memory_bytes=case.charge.gpu_memory.bytes_for(case.min_batch),
        available_gpu_memory_bytes=case.free.gpu_memory_bytes,
    )


def _ceil_divide(amount: int, parts: int) -> int:
    return -(-amount // parts)
