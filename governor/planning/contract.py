"""Holds what a submission asks of time: its class, its period, its deadline, its age.

Values only. Does not cover how they travel (message headers).
"""

from dataclasses import dataclass
from enum import IntEnum

NEVER_NS = 2**63 - 1
"""The deadline of what has none."""


class ServiceClass(IntEnum):
    """Who comes first; a lower number does."""

    PROTECTED = 0
    HIGH = 3
    BEST_EFFORT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The service contract of a submission; times in nanoseconds, from the capture of its data on."""

    service_class: ServiceClass = ServiceClass.BEST_EFFORT
    period_ns: int | None = None
    deadline_ns: int | None = None
    max_age_ns: int | None = None
    supersede_key: str = ""
    """A newer job of the same key replaces one that waits."""

    def absolute_deadline_ns(self, captured_ns: int) -> int:
        """Return when the result is due; far away where there is no deadline."""
        return NEVER_NS if self.deadline_ns is None else captured_ns + self.deadline_ns

    def urgency(self, captured_ns: int, arrived_ns: int) -> tuple[int, int, int]:
        """Return what candidates are ordered by: class, absolute deadline, age; the smallest comes first."""
        return (self.service_class, self.absolute_deadline_ns(captured_ns), arrived_ns)

    def is_stale(self, captured_ns: int, projected_end_ns: int) -> bool:
        """Tell whether a result would be too old when it is there. A missed deadline alone is no reason."""
        return self.max_age_ns is not None and projected_end_ns - captured_ns > self.max_age_ns
