"""Decides what may run on a node beside a large entry that it drains for. Pure.

The entry starts as soon as what it needs is free. Whatever is started before
that must not put it off, however long it runs: see :func:`room_beside`. Does
not cover which entry is drained for, nor when (:mod:`worker.drain`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from governor.budget import charge_of, most
from governor.model import Estimate, Gpu, Grant, HardwareProfile, Policy, Resources

_COUNTED_TWICE = 2
"""A running batch is charged by its reservation, and what it uses is missing from the live budget too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What else may be reserved of each resource; None where it does not matter to the entry."""

    memory_bytes: int | None
    gpu_memory_bytes: int | None
    cpu_threads: int
    gpu_slots: int | None
    io_slots: int | None


def need_of(estimate: Estimate, gpu: Gpu | None) -> Resources:
    """Return the least that a batch starts with: its smallest size, one thread, one of each slot it wants."""
    charge = charge_of(estimate, gpu)
    return Resources(
        memory_bytes=charge.memory.bytes_for(estimate.min_batch),
        gpu_memory_bytes=charge.gpu_memory.bytes_for(estimate.min_batch),
        cpu_threads=1,
        gpu_slots=min(1, estimate.gpu_slots),
        io_slots=min(1, estimate.io_slots),
    )


def could_ever_start(estimate: Estimate, profile: HardwareProfile, policy: Policy) -> bool:
    """Tell whether a batch fits a node on which nothing else runs."""
    if not estimate.is_valid():
        return False
    need, ceiling = need_of(estimate, profile.gpu), most(profile, policy)
    return (
        need.memory_bytes <= ceiling.memory_bytes
        and (ceiling.gpu_memory_bytes is None or (need.gpu_memory_bytes or 0) <= ceiling.gpu_memory_bytes)
        and need.cpu_threads <= ceiling.cpu_threads
        and need.gpu_slots <= ceiling.gpu_slots
        and need.io_slots <= ceiling.io_slots
    )


def sum_of(grants: Iterable[Grant]) -> Resources:
    """Return what some batches have reserved together."""
    grants = tuple(grants)
    return Resources(
        memory_bytes=sum(grant.memory_bytes for grant in grants),
        gpu_memory_bytes=sum(grant.gpu_memory_bytes for grant in grants),
        cpu_threads=sum(grant.cpu_threads for grant in grants),
        gpu_slots=sum(grant.gpu_slots for grant in grants),
        io_slots=sum(grant.io_slots for grant in grants),
    )


def room_beside(need: Resources, budget: Resources, beside: Resources) -> Room:
    """Return what may still be reserved without putting off an entry that needs so much.

    ``budget`` is the live one, ``beside`` the sum of what was started since
    the drain began. Let all that ran before have ended: the budget is then at
    least today's, less what the batches beside have come to use, which is at
    most what they have reserved. They are charged that once more, so the
    entry fits if ``need + 2 * beside <= budget``.
    """
    return Room(
        memory_bytes=_memory_left(need.memory_bytes, budget.memory_bytes, beside.memory_bytes),
        gpu_memory_bytes=_memory_left(
            need.gpu_memory_bytes or 0, budget.gpu_memory_bytes or 0, beside.gpu_memory_bytes or 0
        ),
        cpu_threads=max(0, budget.cpu_threads - need.cpu_threads - beside.cpu_threads),
        gpu_slots=_slots_left(need.gpu_slots, budget.gpu_slots, beside.gpu_slots),
        io_slots=_slots_left(need.io_slots, budget.io_slots, beside.io_slots),
    )


def fitted(estimate: Estimate, gpu: Gpu | None, room: Room) -> Estimate | None:
    """Return an estimate of which no batch takes more than the room; None where the smallest does."""
    if not estimate.is_valid():
        return estimate  # The governor refuses it.
    charge = charge_of(estimate, gpu)
    batch = min(
        estimate.max_batch
        if left_bytes is None
        else need.largest_batch(max(0, left_bytes), estimate.max_batch)
        for need, left_bytes in (
            (charge.memory, room.memory_bytes),
            (charge.gpu_memory, room.gpu_memory_bytes),
        )
    )
    cpu_threads = min(estimate.cpu_threads, room.cpu_threads)
    gpu_slots = _at_most(estimate.gpu_slots, room.gpu_slots)
    io_slots = _at_most(estimate.io_slots, room.io_slots)
    lacks_slots = (estimate.gpu_slots > 0 and gpu_slots == 0) or (estimate.io_slots > 0 and io_slots == 0)
    if batch < estimate.min_batch or cpu_threads < 1 or lacks_slots:
        return None
    return replace(estimate, max_batch=batch, cpu_threads=cpu_threads, gpu_slots=gpu_slots, io_slots=io_slots)


def _memory_left(needed_bytes: int, budget_bytes: int, beside_bytes: int) -> int | None:
    if needed_bytes == 0:
        return None
    return max(0, (budget_bytes - needed_bytes) // _COUNTED_TWICE - beside_bytes)


def _slots_left(needed: int, budget: int, beside: int) -> int | None:
    return None if needed == 0 else max(0, budget - needed - beside)


def _at_most(wished: int, left: int | None) -> int:
    return wished if left is None else min(wished, left)
