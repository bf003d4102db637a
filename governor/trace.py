"""Holds the last decisions with their reasons, for people who ask why.

Does not cover how they are asked for from outside (``worker.trace_command``).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One or more decisions for a kind in a row that had the same verdict and reason.

    A head that waits is decided anew four times a second: told one by one,
    it alone would fill whatever is told.
    """

    last: TraceEntry
    first_at_ns: int
    times: int

    def to_dict(self, now_ns: int) -> dict[str, Any]:
        """Return the JSON object of it: with ages in seconds, and the readings of the last one."""
        decision, snapshot = self.last.decision, asdict(self.last.snapshot)
        captured_at_ns = snapshot.pop("captured_at_ns")
        return {
            "age_seconds": _seconds(now_ns - self.last.at_ns),
            "since_seconds": _seconds(now_ns - self.first_at_ns),
            "times": self.times,
            "kind": self.last.kind,
            **asdict(decision),
            "sentence": decision.sentence(),
            "reservation_id": self.last.reservation_id,
            "readings": {"age_seconds": _seconds(self.last.at_ns - captured_at_ns), **snapshot},
        }


def new_trace() -> deque[TraceEntry]:
    """Return an empty trace that keeps the last entries."""
    return deque(maxlen=ENTRIES)


def stretches(trace: Iterable[TraceEntry]) -> list[Stretch]:
    """Return a trace, oldest entry first, as stretches of equal answers per kind; the newest first."""
    open_stretches: dict[str, Stretch] = {}
    closed: list[Stretch] = []
    for entry in trace:
        before = open_stretches.get(entry.kind)
        if before is not None and _answer(before.last) == _answer(entry):
            open_stretches[entry.kind] = Stretch(
                last=entry, first_at_ns=before.first_at_ns, times=before.times + 1
            )
            continue
        if before is not None:
            closed.append(before)
        open_stretches[entry.kind] = Stretch(last=entry, first_at_ns=entry.at_ns, times=1)
    return sorted([*closed, *open_stretches.values()], key=lambda stretch: -stretch.last.at_ns)


def _answer(entry: TraceEntry) -> tuple[str, str]:
    return entry.decision.verdict, entry.decision.reason


def _seconds(amount_ns: int) -> float:
    return round(amount_ns / 1e9, 3)
