"""Holds the last decisions with their reasons, for people who ask why."""

from collections import deque
from dataclasses import dataclass

from governor.model import Decision, Snapshot

ENTRIES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """One decision, on what it was made, and the reservation it led to (if any)."""

    at_ns: int
    kind: str
    decision: Decision
    snapshot: Snapshot
    reservation_id: int | None

    def sentence(self) -> str:
        """Return e.g. "WAIT INSUFFICIENT_MEMORY: needs 1.06 GiB, 0.81 GiB free of 11.2 GiB"."""
        return self.decision.sentence()


def new_trace() -> deque[TraceEntry]:
    """Return an empty trace that keeps the last entries."""
    return deque(maxlen=ENTRIES)
