"""Holds what the pool knows of one child process: its batch, its clock, how it was told to end.

Does not cover what happens to it (:mod:`worker.pool`).
"""

import socket
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.kind import TimeLimit
from worker.deaths import Death
from worker.frames import BatchReport, BatchRequest, LineBuffer
from worker.memory_kills import EndedChild, KillCounts
from worker.time_limits import WARM_UP_SECONDS, ItemClock

_HEEDS_WITHIN_NS = 3_000_000_000
"""A child that was sent a signal to end it, and lives on for so long, is killed."""


class PoolBatch(Protocol):
    """What the pool tells the owner of a batch; all calls come from the main thread."""

    request: BatchRequest

    def time_limit(self) -> TimeLimit:
        """Return what the items that are worked on now may take."""

    def on_started(self, pid: int) -> None:
        """Tell that a child has the batch."""

    def on_outcome(self, index: int, outcome: dict[str, Any]) -> None:
        """Tell that one item is through."""

    def on_report(self, report: BatchReport) -> None:
        """Tell that the callback is through; nothing more comes unless the child is retired."""

    def on_child_gone(self, death: Death, *, on_request: bool) -> None:
        """Tell that the child of this batch is dead and reaped; ``on_request``: we had it killed."""

    def on_abandoned(self) -> None:
        """Tell that the node ends with the batch unfinished; its messages go back with the lease."""


@dataclass(slots=True, kw_only=True)
class PoolChild:
    """One child; main thread only."""

    serial: int
    channel: socket.socket
    kills_before: KillCounts
    """The kernel's counts of memory kills when it was given its last batch."""
    pid: int | None = None
    batch: PoolBatch | None = None
    clock: ItemClock | None = None
    """Of what it has at work; None while it has no batch."""
    is_retiring: bool = False
    """Gets no further batch: it is being replaced, or has closed its channel."""
    told_to_end_ns: int | None = None
    """When it was, first; None = whoever ends it is not us."""
    over_limit: Death | None = None
    """It is killed because what it is at takes too long."""
    kinds: set[str] = field(default_factory=set)
    """It has been given batches of these, and so has loaded what they need."""
    frames: LineBuffer = field(default_factory=LineBuffer)

    @property
    def is_idle(self) -> bool:
        """Tell whether it can be given a batch."""
        return self.batch is None and not self.is_retiring

    @property
    def is_killed_on_request(self) -> bool:
        """Tell whether we had it killed."""
        return self.told_to_end_ns is not None

    @property
    def is_deaf(self) -> bool:
        """Tell whether it lives on though it was told to end."""
        told_ns = self.told_to_end_ns
        return told_ns is not None and time.monotonic_ns() - told_ns > _HEEDS_WITHIN_NS

    def take(self, batch: PoolBatch, kills_before: KillCounts) -> None:
        """Note that it has a batch; what it must load first is not counted to the first item."""
        is_warm = batch.request.kind in self.kinds
        warm_up_ns = 0 if is_warm else round(WARM_UP_SECONDS * 1e9)
        self.batch = batch
        self.kills_before = kills_before
        self.kinds.add(batch.request.kind)
        self.clock = ItemClock(limit=batch.time_limit(), since_ns=time.monotonic_ns() + warm_up_ns)

    def start_item(self) -> None:
        """Begin to count the time of the next item; the one before is not what it may be killed for."""
        self.over_limit = None
        if self.batch is not None and self.clock is not None:
            self.clock.restart(self.batch.time_limit(), time.monotonic_ns())

    def finish(self) -> None:
        """Note that it is idle."""
        self.batch = self.clock = None

    def end_of(self, frame: dict[str, Any]) -> EndedChild:
        """Return what is known of its death; its peak is of the batch that it had, if any."""
        batch = self.batch
        return EndedChild(
            status=frame["status"],
            is_unasked=not self.is_killed_on_request,
            before=self.kills_before,
            reserved_bytes=0 if batch is None else batch.request.grant.memory_bytes,
            peak_bytes=None if batch is None else frame["peak_bytes"],
        )
