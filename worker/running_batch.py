"""Holds one batch from dispatch to release: settles its items, tells Celery's events, records, releases.

The only place that decides what becomes of a claimed item once it was given
to a child. Does not talk to Redis itself (:mod:`worker.settle`).
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from governor.governor import Governor
from governor.ledger import Reservation
from governor.model import Estimate
from tasks.errors import Failure, Reason
from tasks.kind import Kind, TimeLimit
from tasks.store.probe import StoreFault
from worker import refusals, time_limits
from worker.claimed_item import ClaimedItem
from worker.dead_jobs import Attempt
from worker.deaths import Death, Ending, LastEnd
from worker.estimates import share_of_peak, with_more_memory
from worker.frames import BatchReport, BatchRequest
from worker.logs import get_logger
from worker.settle import Settler, failed_entry, settlement
from worker.sight import Sight
from worker.store_health import StoreAwayError, StoreHealth, until_it_is_back

log = get_logger(__name__)

MAX_ATTEMPTS = 3
_BACK_OFF_MS = (1_000, 5_000)
"""After the first and the second attempt."""
_NO_RESULT = Death(ending=Ending.NO_RESULT, cause="done without a result")
_LOOK_AT_THE_LOG = "Look at the worker's log; resume the project, or retry the job, to try again."
_MORE_MEMORY = "Resume the project, or retry the job, with more free memory; or use smaller photos."
_batch_numbers = count(1)
"""A child talks to one main process only: numbers of this process are enough to tell its batches apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchServices:
    """What every batch of a node needs."""

    governor: Governor
    settler: Settler
    record_failure: Callable[[ClaimedItem, Failure], None]
    """Writes a failure that no child could write into the project's store."""
    sight: Sight | None = None
    """Who sees which photos; None where no other node will come."""
    store: StoreHealth | None = None
    """Whether the store can be worked on; None where nobody asks."""
    on_over: Callable[["RunningBatch"], None]
    node: str = ""
    """The node's name, for reports."""


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
            soft_seconds=time_limits.least_soft_seconds(limits),
            store_id=services.store.store_id if services.store is not None else "",
        )
        self._kind = kind
        self._limits = limits
        self._time_limit = limits[0]
        self._reservation = reservation
        self._services = services
        self._settler = services.settler
        self._open: dict[int, ClaimedItem] = dict(enumerate(items))
        self._project = next((item.place.project for item in items if item.place), None)
        self._dispatched_ns = time.monotonic_ns()
        self._has_outcome = self._is_over = False

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
        if item.is_cancelled:
            self._cancel(item)
            return
        match outcome["action"]:
            case "done":
                self._finish(item, outcome)
            case "not_ready":
                log.warning("input_missing", kind=self._kind.name, item=item.name, cause=outcome["cause"])
                self._finish(item, outcome)
            case "failed":
                self._fail(item, _failure(outcome))
            case "needs":
                self._ask_for_more(item, outcome["estimate"])
            case "elsewhere":
                self._pass_on(item, outcome)
            case "transient":
                self._back_off(item, outcome["cause"])
            case "store_away":
                self._wait_for_store(item, StoreFault(**outcome["fault"]))
            case "suspect":
                self._suspect(item, _end_without_death(outcome))

    def on_report(self, report: BatchReport) -> None:
        """Record what was measured; give back what the callback did not reach."""
        for index in tuple(self._open):
            item = self._open.pop(index)
            if self._has_outcome:
                self._give_back(item, "its batch ended before its turn")
            else:
                # A batch that comes to nothing would come back for ever.
                self._suspect(item, _NO_RESULT)
        self._record(report)
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
                self._cancel(item, death.peak_bytes)
            elif position < window and death.ending is Ending.SPAWNER_LOST:
                self._count_lost(item, death)
            elif position < window and suspects == 1 and death.ending is Ending.TIME_LIMIT:
                self._end_at_the_limit(item, death)
            elif position < window:
                self._suspect(item, death, suspects)
            else:
                self._give_back(item, "the process of its batch ended before its turn")
        if death.ending.is_for_memory:
            self._record_overuse(death.peak_bytes or 0, finished=len(self.request.payloads) - open_items)
        self._release()

    def on_abandoned(self) -> None:
        """End with the node: what is not settled goes back when the lease is released."""
        self._open.clear()
        self._release()

    # -- What becomes of an item ------------------------------------------------------

    def _finish(self, item: ClaimedItem, outcome: dict[str, Any]) -> None:
        entry = {**settlement(item, outcome["action"]), "pushes": outcome.get("pushes", [])}
        if item.place is None:
            entry |= self._place_of_a_bare_job(item, outcome)
        if "continuation" in outcome:
            entry["continuation"] = json.dumps(outcome["continuation"])
            entry["continue_at"] = outcome["continue_at"]
        if "progress" in outcome:
            entry["progress"] = outcome["progress"]
        self._settler.add(entry)
        if self._services.store is not None and outcome["action"] == "done":
            self._services.store.note_result()
        item.request.acknowledged = True
        item.request.on_success((False, None, self._elapsed_seconds()))

    def _place_of_a_bare_job(self, item: ClaimedItem, outcome: dict[str, Any]) -> dict[str, Any]:
        """Return where the follow-ups of a job belong whose sender gave no place in a project."""
        follow_ups = [*outcome.get("pushes", []), outcome.get("continuation")]
        project = next((job["project"] for job in follow_ups if job), None)
        return {} if project is None else {"project": project, "stage": self._kind.stage, "item": item.job_id}

    def _fail(self, item: ClaimedItem, failure: Failure, peak_bytes: int | None = None) -> None:
        log.warning("job_failed", kind=self._kind.name, name=failure.name, cause=failure.cause)
        self._settler.add(failed_entry(item, self._kind.name, failure, self._attempt(peak_bytes)))
        item.announce_failure(failure)

    def _attempt(self, peak_bytes: int | None) -> Attempt:
        reserved_bytes = self.request.grant.memory_bytes
        return Attempt(node=self._services.node, reserved_bytes=reserved_bytes, peak_bytes=peak_bytes)

    def _give_up(
        self, item: ClaimedItem, reason: Reason, *, cause: str, cure: str, peak_bytes: int | None = None
    ) -> None:
        """Fail an item for a reason that no child could write into the project's store."""
        failure = Failure(name=item.name, reason=reason, cause=cause, cure=cure)
        if self._is_recorded(item, failure):
            self._fail(item, failure, peak_bytes)

    def _cancel(self, item: ClaimedItem, peak_bytes: int | None = None) -> None:
        """Settle a job that Celery has revoked; Celery has told its events already."""
        failure = refusals.cancelled(item.name)
        if self._is_recorded(item, failure):
            self._settler.add(failed_entry(item, self._kind.name, failure, self._attempt(peak_bytes)))

    def _give_back(
        self, item: ClaimedItem, why: str, *, attempts: int = 0, estimate: str | None = None
    ) -> None:
        entry = {**settlement(item, "requeue"), "attempts": attempts}
        if estimate is not None:
            entry["estimate"] = estimate
        if attempts and item.last_end is not None:
            entry["last_end"] = item.last_end.to_text()
        self._settler.add(entry)
        item.announce_return(why)

    def _count_lost(self, item: ClaimedItem, death: Death) -> None:
        """Give an item back whose spawner died: as if its node had been lost, whoever is to blame."""
        lost = {"attempts": 0, "lost": 1, "lost_on": json.dumps(self._services.node)}
        self._settler.add({**settlement(item, "requeue"), **lost})
        item.announce_return(death.cause)

    def _ask_for_more(self, item: ClaimedItem, estimate: str) -> None:
        """Give an item back with a larger estimate; one that is no larger would come back for ever."""
        grant = self.request.grant
        if Estimate.from_header(estimate).memory_bytes(1) > grant.memory_bytes // grant.batch:
            self._give_back(item, "it needs more memory than was reserved", estimate=estimate)
            return
        self._give_up(
            item,
            Reason.INTERNAL_ERROR,
            cause=f"{self._kind.name} asked for more memory than it was granted, but named no more",
            cure="Report this with the worker's log; the item is left out of the project.",
        )

    def _back_off(self, item: ClaimedItem, cause: str) -> None:
        """Park an item of whose files one could not be used; it comes back after a while."""
        item.attempts += 1
        if item.attempts >= MAX_ATTEMPTS:
            cure = "Make the file that it names readable and writable, then resume the project."
            self._give_up(item, Reason.STORE_UNAVAILABLE, cause=cause, cure=cure)
            return
        delay_ms = _BACK_OFF_MS[item.attempts - 1]
        log.warning("job_parked", kind=self._kind.name, item=item.name, cause=cause, delay_ms=delay_ms)
        self._settler.add({**settlement(item, "park"), "attempts": 1, "delay_ms": delay_ms})
        item.announce_return(cause)

    def _wait_for_store(self, item: ClaimedItem, fault: StoreFault) -> None:
        """Park an item that could not be worked on for want of the store: the node waits, nothing counts."""
        if self._services.store is not None:
            self._services.store.note_fault(fault)
        self._settler.add(until_it_is_back(item))
        item.announce_return(fault.cause)

    def _is_recorded(self, item: ClaimedItem, failure: Failure) -> bool:
        """Write a failure into the project's store; without that the item goes back, to end another time."""
        try:
            self._services.record_failure(item, failure)
        except StoreAwayError as error:
            self._settler.add(until_it_is_back(item))
            item.announce_return(str(error))
            return False
        return True

    def _pass_on(self, item: ClaimedItem, outcome: dict[str, Any]) -> None:
        """Give an item to the nodes that may see its file; fail it without any, or at the third look.

        A node that was never meant to see the file counts no attempt.
        """
        sight, attempts = self._services.sight, int(outcome["counts_attempt"])
        others = sight.others(outcome["source"]) if sight is not None else []
        delay_ms = _BACK_OFF_MS[min(item.attempts, 1)]
        item.attempts += attempts
        is_over = others is not None and (not others or item.attempts >= MAX_ATTEMPTS)
        if sight is None or is_over:
            failure = _failure(outcome) if sight is None else sight.failure(_failure(outcome), others or [])
            if self._is_recorded(item, failure):
                self._fail(item, failure)
            return
        log.info("left_to_other_nodes", kind=self._kind.name, name=item.name, source=outcome["source"])
        sight.note_blind(self._kind.name, item.place.project if item.place else "")
        self._settler.add({**settlement(item, "park"), "attempts": attempts, "delay_ms": delay_ms})
        item.announce_return(str(outcome["failure"]["cause"]))

    def _suspect(self, item: ClaimedItem, death: Death, suspects: int = 1) -> None:
        """Count an attempt, the third is the last; an item whose memory ran out gets more.

        ``suspects`` of the batch were worked on at a time, and share its peak.
        """
        self._note_end(item, death)
        if item.attempts < MAX_ATTEMPTS:
            log.warning("suspect_given_back", kind=self._kind.name, item=item.name, cause=death.cause)
            estimate = self._larger_estimate(item, death, suspects) if death.ending.is_for_memory else None
            self._give_back(item, death.cause, attempts=1, estimate=estimate)
            return
        self._give_up(
            item,
            Reason.WORKER_LOST,
            cause=f"{MAX_ATTEMPTS} attempts ended without a result; the last: {death.cause}",
            cure=_MORE_MEMORY if death.ending.is_for_memory else _LOOK_AT_THE_LOG,
            peak_bytes=death.peak_bytes,
        )

    def _end_at_the_limit(self, item: ClaimedItem, death: Death) -> None:
        """Fail an item that hung alone, at once: each further attempt would take as long again."""
        self._note_end(item, death)
        failure = time_limits.failure(item.name, death.cause)
        peak_bytes = death.peak_bytes
        self._give_up(item, failure.reason, cause=failure.cause, cure=failure.cure, peak_bytes=peak_bytes)

    def _note_end(self, item: ClaimedItem, death: Death) -> None:
        """Count an attempt that ended without a result."""
        item.last_end = LastEnd(
            ending=death.ending,
            node=self._services.node,
            reserved_bytes=self.request.grant.memory_bytes,
            peak_bytes=death.peak_bytes,
        )
        item.attempts += 1

    def _larger_estimate(self, item: ClaimedItem, death: Death, suspects: int) -> str:
        """Return what an item whose memory ran out is tried again with, alone."""
        estimate = item.estimate(self._kind)
        history = self._services.governor.history(self._kind.name)
        known_bytes = [record.peak_memory_bytes or 0 for record in history]
        known_bytes.append(share_of_peak(estimate, death.peak_bytes or 0, suspects))
        return with_more_memory(estimate, known_bytes).to_header()

    # -- The batch as a whole ---------------------------------------------------------

    def _record(self, report: BatchReport) -> None:
        grant = self.request.grant
        self._services.governor.record_batch(
            self._kind.name,
            items=report.recorded_items,
            duration_ns=time.monotonic_ns() - self._dispatched_ns,
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
            self._settler.add(
                {
                    "action": "batch",
                    "project": self._project,
                    "kind": self._kind.name,
                    "reserved_bytes": grant.memory_bytes,
                    "peak_bytes": report.peak_bytes,
                    "ratio_permille": -(-report.peak_bytes * 1000 // max(grant.memory_bytes, 1)),
                }
            )

    def _record_overuse(self, peak_bytes: int, *, finished: int) -> None:
        """Let a batch that died teach, if it is known to have used more than was reserved."""
        if peak_bytes > self.request.grant.memory_bytes:
            self._record(BatchReport(peak_bytes=peak_bytes, recorded_items=max(1, finished), retire=False))

    def _release(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._services.on_over(self)
            self._services.governor.release(self._reservation)

    def _elapsed_seconds(self) -> float:
        return (time.monotonic_ns() - self._dispatched_ns) / 1e9


def _end_without_death(outcome: dict[str, Any]) -> Death:
    """Return what a living child tells of an item that it could not finish."""
    return Death(
        ending=Ending(outcome["ending"]), cause=outcome["cause"], peak_bytes=outcome.get("peak_bytes")
    )


def _failure(outcome: dict[str, Any]) -> Failure:
    """Return the failure that a child has reported."""
    return Failure(**{**outcome["failure"], "reason": Reason(outcome["failure"]["reason"])})
