"""Holds the last eight batches of each kind and decides what they teach about its size.

In memory only, strictly bounded, and nothing passes from one kind to another.
Durations are kept for planning; they do not steer a batch here.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from governor.budget import Need
from governor.model import UINT64_MAX, Estimate

ENTRIES_PER_KIND = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """One finished batch; ``peak_memory_bytes`` None is unknown."""

    batch: int
    items: int
    duration_ns: int
    peak_memory_bytes: int | None
    reserved_bytes: int
    threads: int

    def exceeded_reservation(self) -> bool:
        """Tell whether the batch is known to have used more than was reserved for it."""
        return self.peak_memory_bytes is not None and self.peak_memory_bytes > self.reserved_bytes


class BatchHistory:
    """The rings of all kinds. Not thread-safe: the governor's lock guards it."""

    def __init__(self) -> None:
        self._rings: dict[str, deque[BatchRecord]] = {}

    def add(self, kind: str, record: BatchRecord) -> None:
        """Append to the kind's ring; the ninth entry pushes out the first."""
        self._rings.setdefault(kind, deque(maxlen=ENTRIES_PER_KIND)).append(record)

    def of(self, kind: str) -> tuple[BatchRecord, ...]:
        """Return the kind's entries, oldest first."""
        return tuple(self._rings.get(kind, ()))


def adapted_batch(estimate: Estimate, memory: Need, records: Sequence[BatchRecord]) -> int:
    """Return the batch whose true cost fits what ``max_batch`` items are charged.

    ``memory`` is the folded charge of the estimate. Only batches that used
    more than their reservation count; the costliest of them decides. Never
    above ``max_batch``, never below ``min_batch``.
    """
    costs = [_cost_per_item_bytes(memory, record) for record in records if record.exceeded_reservation()]
    cost_bytes = max(costs, default=0)
    if memory.per_item_bytes == 0 or cost_bytes <= memory.per_item_bytes:
        return estimate.max_batch
    charged_bytes = estimate.max_batch * memory.per_item_bytes
    fitting = 1 if charged_bytes > UINT64_MAX else charged_bytes // cost_bytes
    return max(fitting, estimate.min_batch)


def _cost_per_item_bytes(memory: Need, record: BatchRecord) -> int:
    beyond_fixed_bytes = max(0, (record.peak_memory_bytes or 0) - memory.fixed_bytes)
    return -(-beyond_fixed_bytes // record.batch)
