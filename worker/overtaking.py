"""Holds how each head has waited on this node: since when, and whether others have overtaken it.

Does not cover what follows from it (:mod:`worker.misfits`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.candidates import WaitingTimes
from worker.claim import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How one head has waited."""

    tried_since_ns: int | None
    """Since when it could be tried; None where it was not noted."""
    seen_since_ns: int | None
    """Since when it is known, though the node may have been too busy to try it."""
    is_overtaken: bool
    """Something of another list was started since it is known."""

    def is_starved(self, now_ns: int, after_ns: int) -> bool:
        """Tell whether others were served while it waited for so long."""
        return (
            self.is_overtaken and self.seen_since_ns is not None and now_ns - self.seen_since_ns >= after_ns
        )


class Overtaking:
    """What has waited and what was started, by one node's clock; main thread only."""

    def __init__(self) -> None:
        self.tried = WaitingTimes()
        self._seen = WaitingTimes()
        self._started_ns: dict[str, int] = {}

    def note_seen(self, heads: Sequence[Head], now_ns: int) -> None:
        """Remember heads that cannot be tried yet."""
        self._seen.note(heads, now_ns)

    def note_tried(self, heads: Sequence[Head], now_ns: int) -> None:
        """Remember heads that are about to be tried."""
        self._seen.note(heads, now_ns)
        self.tried.note(heads, now_ns)

    def note_started(self, source: str, now_ns: int) -> None:
        """Remember that a batch of a list or large set was started."""
        self._started_ns[source] = now_ns

    def of(self, head: Head) -> Waiting:
        """Return how a head has waited.

        What starts of its own list was the head itself, not something that overtook it.
        """
        since_ns = self._seen.since_ns(head)
        return Waiting(
            tried_since_ns=self.tried.since_ns(head),
            seen_since_ns=since_ns,
            is_overtaken=since_ns is not None
            and any(
                source != head.source and started_ns > since_ns
                for source, started_ns in self._started_ns.items()
            ),
        )
