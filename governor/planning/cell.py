"""Holds the last durations of one (kind, variant, batch class, occupancy), and their quantiles.

Not the governor's history of eight batches: that one adapts batches to memory,
this one corrects plans. Integers only.
"""

from collections import deque
from collections.abc import Sequence

MICROSECOND_NS = 1_000
MAX_BATCH_CLASS = 64
_ENTRIES = 64
READY_AT = 16
_LARGEST_US = 2**32 - 1


class Cell:
    """A ring of the last 64 durations per item, in whole microseconds."""

    def __init__(self) -> None:
        self._durations_us: deque[int] = deque(maxlen=_ENTRIES)
        self._sorted_us: list[int] = []
        """Sorted when somebody asks: a plan is made much more often than a batch ends."""

    def __len__(self) -> int:
        return len(self._durations_us)

    @property
    def is_ready(self) -> bool:
        """Tell whether the ring holds enough durations to be believed: 16."""
        return len(self._durations_us) >= READY_AT

    def add(self, duration_ns: int, items: int = 1) -> None:
        """Add the duration of a batch, per item; saturating at 32 bits."""
        self._durations_us.append(min(duration_ns // items // MICROSECOND_NS, _LARGEST_US))
        self._sorted_us = []

    def quantile_ns(self, percent: int) -> int | None:
        """Return a quantile per item, or None below 16 durations."""
        if not self.is_ready:
            return None
        if not self._sorted_us:
            self._sorted_us = sorted(self._durations_us)
        return quantile(self._sorted_us, percent) * MICROSECOND_NS

    def clear(self) -> None:
        """Forget everything: the durations of another profile."""
        self._durations_us.clear()
        self._sorted_us = []


def quantile(ordered: Sequence[int], percent: int) -> int:
    """Return of n sorted values the one of index min(n * percent // 100, n - 1): none is invented."""
    count = len(ordered)
    return ordered[min(count * percent // 100, count - 1)]


def batch_class(items: int) -> int:
    """Return the next power of two, 64 at most."""
    return min(1 << max(items - 1, 0).bit_length(), MAX_BATCH_CLASS)
