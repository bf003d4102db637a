"""Decides what a request is charged and what there is to charge it to: arithmetic only.

All subtraction saturates at 0. Python's integers do not overflow, so sums are
checked against 64 bits here.
"""

from dataclasses import dataclass

from governor.model import UINT64_MAX, Estimate, Gpu, HardwareProfile, Policy, Resources, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A need that grows with the batch: ``fixed_bytes + batch * per_item_bytes``."""

    fixed_bytes: int
    per_item_bytes: int

    def bytes_for(self, batch: int) -> int:
        """Return what a batch of that size needs (not range-checked)."""
        return self.fixed_bytes + batch * self.per_item_bytes

    def largest_batch(self, available_bytes: int, max_batch: int) -> int:
        """Return the largest batch that fits, at most ``max_batch``; 0 if none does."""
        if self.fixed_bytes > available_bytes:
            return 0
        if self.per_item_bytes == 0:
            return max_batch
        return min(max_batch, (available_bytes - self.fixed_bytes) // self.per_item_bytes)

    def is_in_range(self, batch: int) -> bool:
        """Tell whether the parts and the need of such a batch fit in 64 bits."""
        return max(self.fixed_bytes, self.per_item_bytes, self.bytes_for(batch)) <= UINT64_MAX


_NOTHING = Need(fixed_bytes=0, per_item_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a request is charged: to the RAM, and to a dedicated card's memory."""

    memory: Need
    gpu_memory: Need


def charge_of(estimate: Estimate, gpu: Gpu | None) -> Charge:
    """Fold an estimate for a node: unified memory is charged once, to the RAM."""
    memory = Need(fixed_bytes=estimate.memory_fixed_bytes, per_item_bytes=estimate.memory_per_item_bytes)
    if not estimate.wants_gpu_memory():
        return Charge(memory=memory, gpu_memory=_NOTHING)
    gpu_memory = Need(
        fixed_bytes=estimate.gpu_memory_fixed_bytes, per_item_bytes=estimate.gpu_memory_per_item_bytes
    )
    if gpu is None or not gpu.is_uma:
        return Charge(memory=memory, gpu_memory=gpu_memory)
    folded = Need(
        fixed_bytes=memory.fixed_bytes + gpu_memory.fixed_bytes,
        per_item_bytes=memory.per_item_bytes + gpu_memory.per_item_bytes,
    )
    return Charge(memory=folded, gpu_memory=_NOTHING)


def least_memory_bytes(estimate: Estimate, profile: HardwareProfile) -> int:
    """Return the RAM that the estimate's smallest batch is charged on this node."""
    return charge_of(estimate, profile.gpu).memory.bytes_for(estimate.min_batch)


def most_memory_bytes(profile: HardwareProfile, policy: Policy) -> int:
    """Return the most RAM that this node could ever offer to one batch."""
    return _less(profile.memory_total_bytes, policy.memory_reserve_bytes)


def most_gpu_memory_bytes(profile: HardwareProfile, policy: Policy) -> int | None:
    """Return the most memory of a card of its own that this node could ever offer; None: unknown."""
    return _gpu_memory_budget(profile.gpu, policy, profile.gpu.memory_total_bytes if profile.gpu else None)


def most(profile: HardwareProfile, policy: Policy) -> Resources:
    """Return the budget of a node on which nothing else runs."""
    return _budget(
        profile, policy, most_memory_bytes(profile, policy), most_gpu_memory_bytes(profile, policy)
    )


def live_budget(profile: HardwareProfile, policy: Policy, snapshot: Snapshot) -> Resources:
    """Return the budget that a snapshot leaves.

    Memory that a running batch already uses is missing from the snapshot and
    is charged by its reservation too: a false WAIT is better than an overcommit.
    """
    unpromised_bytes = _less(snapshot.memory_available_bytes, snapshot.memory_promised_bytes)
    physical_bytes = min(unpromised_bytes, profile.memory_total_bytes)
    return _budget(
        profile,
        policy,
        _less(physical_bytes, policy.memory_reserve_bytes),
        _gpu_memory_budget(profile.gpu, policy, snapshot.gpu_memory_available_bytes),
    )


def remaining(budget: Resources, reserved: Resources) -> Resources:
    """Return what is left of a budget; unknown stays unknown."""
    gpu_memory_bytes = budget.gpu_memory_bytes
    return Resources(
        memory_bytes=_less(budget.memory_bytes, reserved.memory_bytes),
        gpu_memory_bytes=(
            None if gpu_memory_bytes is None else _less(gpu_memory_bytes, reserved.gpu_memory_bytes or 0)
        ),
        cpu_threads=_less(budget.cpu_threads, reserved.cpu_threads),
        gpu_slots=_less(budget.gpu_slots, reserved.gpu_slots),
        io_slots=_less(budget.io_slots, reserved.io_slots),
    )


def exceeds(reserved: Resources, budget: Resources) -> bool:
    """Tell whether any amount is above its budget; an unknown budget is not exceeded."""
    return any(
        limit is not None and taken > limit
        for taken, limit in zip(_amounts(reserved), _amounts(budget), strict=True)
        if taken is not None
    )


def falls_below(reserved: Resources, before: Resources, after: Resources) -> bool:
    """Tell whether any budget is lowered to less than what is reserved of it.

    A budget that is short already and is not lowered does not count.
    """
    amounts = zip(_amounts(reserved), _amounts(before), _amounts(after), strict=True)
    return any(
        then < now and then < taken
        for taken, now, then in amounts
        if taken is not None and now is not None and then is not None
    )


def _amounts(resources: Resources) -> tuple[int | None, ...]:
    return (
        resources.memory_bytes,
        resources.gpu_memory_bytes,
        resources.cpu_threads,
        resources.gpu_slots,
        resources.io_slots,
    )


def _budget(
    profile: HardwareProfile, policy: Policy, memory_bytes: int, gpu_memory_bytes: int | None
) -> Resources:
    return Resources(
        memory_bytes=memory_bytes,
        gpu_memory_bytes=gpu_memory_bytes,
        cpu_threads=_less(profile.logical_cpus, policy.cpu_reserve_threads),
        gpu_slots=policy.gpu_slots if profile.gpu is not None else 0,
        io_slots=policy.io_slots,
    )


def _gpu_memory_budget(gpu: Gpu | None, policy: Policy, free_bytes: int | None) -> int | None:
    if gpu is None or gpu.is_uma:
        return 0
    if free_bytes is None:
        return None
    if gpu.memory_total_bytes is not None:
        free_bytes = min(free_bytes, gpu.memory_total_bytes)
    return _less(free_bytes, policy.gpu_memory_reserve_bytes)


def _less(amount: int, taken: int) -> int:
    return max(0, amount - taken)
