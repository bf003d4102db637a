"""Holds one batch from dispatch to release: whom its end is counted against, what it teaches.

Does not decide what becomes of a single item (:mod:`worker.item_endings`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from governor.ledger import Reservation
from governor.planning.planner import Plan
from tasks.kind import Kind, TimeLimit
from worker import time_limits
from worker.claimed_item import ClaimedItem
from worker.contracts import NOTHING_SAID, to_headers
from worker.deaths import Death, Ending
from worker.duration_log import BatchDuration, DurationLog
from worker.frames import BatchReport, BatchRequest
from worker.item_endings import ItemEndings, ItemServices
from worker.logs import get_logger
from worker.planning import NodePlanning

log = get_logger(__name__)

_NO_RESULT = Death(ending=Ending.NO_RESULT, cause="done without a result")
_batch_numbers = count(1)
"""A child talks to one main process only: numbers of this process are enough to tell its batches apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchServices(ItemServices):
    """What every batch of a node needs."""

    on_over: Callable[["RunningBatch"], None]
    planning: NodePlanning | None = None
    """None = durations are not planned."""
    durations: DurationLog | None = None
    """None = nobody writes down how long batches take."""


class RunningBatch:
    """One reservation, one child call; main thread only.

    The reservation is released exactly once: after the report, or when the
    child is dead and reaped.
    """

    def __init__(
        self, items: Sequence[ClaimedItem], kind: Kind, reservation: Reservation, services: BatchServices
    ) -> None:
        limits = time_limits.limits_of([item.request for item in items])
        self.request = BatchRequest(
            batch_id=str(next(_batch_numbers)),
            kind=kind.name,
            payloads=tuple(item.payload for item in items),
            places=tuple(item.place for item in items),
            grant=reservation.grant,
            contracts=_contracts_of(items),
            soft_seconds=time_limits.least_soft_seconds(limits),
            store_id=services.store.store_id if services.store is not None else "",
        )
        self._kind = kind
        self._limits = limits
        self._time_limit = limits[0]
        self._reservation = reservation
        self._services = services
        self._endings = ItemEndings(kind, reservation.grant, services)
        self._open: dict[int, ClaimedItem] = dict(enumerate(items))
        self._project = next((item.place.project for item in items if item.place), None)
        self._is_first_attempt = not any(item.attempts or item.lost for item in items)
        self._variant = "gpu" if kind.needs_opencl else "cpu"
        is_noted = services.planning is not None or services.durations is not None
        self._others = services.governor.availability().active_reservations - 1 if is_noted else 0
        self._plan = self._make_plan()
        self._dispatched_ns = time.monotonic_ns()
        self._has_outcome = self._is_over = False

    def _make_plan(self) -> Plan | None:
        """Plan the batch as it is now: beside what else runs here."""
        planning = self._services.planning
        if planning is None:
            return None
        return planning.plan(
            self._kind.name, items=len(self.request.payloads), others=self._others, variant=self._variant
        )

    @property
    def projected_end_ns(self) -> int | None:
        """Return when it is planned to have ended, by CLOCK_MONOTONIC; None where no plan is known."""
        return None if self._plan is None else self._dispatched_ns + self._plan.conservative_ns

    def open_tags(self) -> set[str]:
        """Return the tags of the messages that are not settled yet."""
        return {item.tag for item in self._open.values()}

    def time_limit(self) -> TimeLimit:
        """Return what the items that are worked on now may take; once all are through, what the last had."""
        if self._open and len(self._limits) > 1:
            at_work = islice(self._open, self._kind.window(self.request.grant))
            self._time_limit = time_limits.widest(self._limits[index] for index in at_work)
        return self._time_limit

    # -- What the pool tells ----------------------------------------------------------

    def on_started(self, pid: int) -> None:
        """Tell Celery that every item of the batch runs."""
        for item in self._open.values():
            item.request.on_accepted(pid, time.monotonic())

    def on_outcome(self, index: int, outcome: dict[str, Any]) -> None:
        """Settle one item as the child says."""
        item = self._open.pop(index)
        self._has_outcome = True
        self._endings.settle(item, outcome)

    def on_report(self, report: BatchReport) -> None:
        """Record what was measured; give back what the callback did not reach."""
        duration_ns = time.monotonic_ns() - self._dispatched_ns
        for index in tuple(self._open):
            item = self._open.pop(index)
            if self._has_outcome:
                self._endings.give_back(item, "its batch ended before its turn")
            else:
                # A batch that comes to nothing would come back for ever.
                self._endings.suspect(item, _NO_RESULT)
        self._record(report, duration_ns)
        self._teach(report, duration_ns)
        if not report.retire:
            self._release()

    def on_child_gone(self, death: Death, *, on_request: bool) -> None:
        """Treat the items in the callback's window as suspects, give the rest back untouched.

        Where we had the child killed (a revoked job, a cold shutdown) nobody is suspect.
        Where its spawner died nothing is known of any job: a lost node is counted
        for them, so that one that kills its spawner each time comes to an end.
        """
        window = 0 if on_request else self._kind.window(self.request.grant)
        open_items = len(self._open)
        suspects = min(window, open_items)
        for position, index in enumerate(sorted(self._open)):
            item = self._open.pop(index)
            if item.is_cancelled:
                self._endings.cancel(item, death.peak_bytes)
            elif position < window and death.ending is Ending.SPAWNER_LOST:
                self._endings.count_lost(item, death)
            elif position < window and suspects == 1 and death.ending is Ending.TIME_LIMIT:
                self._endings.end_at_the_limit(item, death)
            elif position < window:
                self._endings.suspect(item, death, suspects)
            else:
                self._endings.give_back(item, "the process of its batch ended before its turn")
        if death.ending.is_for_memory:
            self._record_overuse(death.peak_bytes or 0, finished=len(self.request.payloads) - open_items)
        self._release()

    def on_abandoned(self) -> None:
        """End with the node: what is not settled goes back when the lease is released."""
        self._open.clear()
        self._release()

    # -- The batch as a whole ---------------------------------------------------------

    def _record(self, report: BatchReport, duration_ns: int) -> None:
        grant = self.request.grant
        self._services.governor.record_batch(
            self._kind.name,
            items=report.recorded_items,
            duration_ns=duration_ns,
            peak_memory_bytes=report.peak_bytes,
            reserved_bytes=grant.memory_bytes,
            threads=grant.cpu_threads,
            batch=grant.batch,
        )
        if report.peak_bytes > grant.memory_bytes:
            log.error(
                "reservation_exceeded",
                kind=self._kind.name,
                peak_bytes=report.peak_bytes,
                reserved_bytes=grant.memory_bytes,
            )
        if self._project is not None:
            self._services.settler.add(
                {
                    "action": "batch",
                    "project": self._project,
                    "kind": self._kind.name,
                    "reserved_bytes": grant.memory_bytes,
                    "peak_bytes": report.peak_bytes,
                    "ratio_permille": -(-report.peak_bytes * 1000 // max(grant.memory_bytes, 1)),
                    "items": report.worked_items,
                    "busy_us": duration_ns // 1000,
                }
            )

    def _teach(self, report: BatchReport, duration_ns: int) -> None:
        """Let a batch teach all of whose items were done, at the first attempt, by work.

        Not what failed, came back, was there already, or ran beside something that was.
        """
        items = len(self.request.payloads)
        if report.worked_items < items or not self._is_first_attempt:
            return
        if self._services.planning is not None and self._plan is not None:
            self._services.planning.complete(self._plan, duration_ns)
        if self._services.durations is not None:
            self._services.durations.note(
                BatchDuration(
                    kind=self._kind.name,
                    variant=self._variant,
                    items=items,
                    others=self._others,
                    duration_ns=duration_ns,
                )
            )

    def _record_overuse(self, peak_bytes: int, *, finished: int) -> None:
        """Let a batch that died teach, if it is known to have used more than was reserved."""
        if peak_bytes > self.request.grant.memory_bytes:
            report = BatchReport(peak_bytes=peak_bytes, recorded_items=max(1, finished), retire=False)
            self._record(report, time.monotonic_ns() - self._dispatched_ns)

    def _release(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._services.on_over(self)
            self._services.governor.release(self._reservation)


def _contracts_of(items: Sequence[ClaimedItem]) -> tuple[dict[str, Any], ...]:
    """Return the items' contracts as headers; nothing where none says anything, as almost always."""
    if all(item.contract == NOTHING_SAID for item in items):
        return ()
    return tuple(to_headers(item.contract) for item in items)
