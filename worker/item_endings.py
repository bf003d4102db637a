"""Decides what becomes of one item of a running batch, settles it and tells Celery's events.

Does not cover the batch as a whole (:mod:`worker.running_batch`), nor talk to
Redis itself (:mod:`worker.settle`).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from governor.governor import Governor
from governor.model import Estimate, Grant
from tasks.errors import Failure, Reason
from tasks.kind import Kind
from tasks.store.probe import StoreFault
from worker import refusals, time_limits
from worker.claimed_item import ClaimedItem
from worker.dead_jobs import Attempt
from worker.deaths import Death, Ending, LastEnd
from worker.estimates import share_of_peak, with_more_memory
from worker.logs import get_logger
from worker.settle import Settler, failed_entry, settlement
from worker.sight import Sight
from worker.store_health import StoreAwayError, StoreHealth, until_it_is_back

log = get_logger(__name__)

MAX_ATTEMPTS = 3
_BACK_OFF_MS = (1_000, 5_000)
"""After the first and the second attempt."""
_LOOK_AT_THE_LOG = "Look at the worker's log; resume the project, or retry the job, to try again."
_MORE_MEMORY = "Resume the project, or retry the job, with more free memory; or use smaller photos."


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemServices:
    """What the end of every item needs of its node."""

    governor: Governor
    settler: Settler
    record_failure: Callable[[ClaimedItem, Failure], None]
    """Writes a failure that no child could write into the project's store."""
    sight: Sight | None = None
    """Who sees which photos; None where no other node will come."""
    store: StoreHealth | None = None
    """Whether the store can be worked on; None where nobody asks."""
    node: str = ""
    """The node's name, for reports."""


class ItemEndings:
    """What becomes of the items of one batch; main thread only."""

    def __init__(self, kind: Kind, grant: Grant, services: ItemServices) -> None:
        self._kind = kind
        self._grant = grant
        """What the batch has reserved."""
        self._services = services
        self._settler = services.settler
        self._dispatched_ns = time.monotonic_ns()

    def settle(self, item: ClaimedItem, outcome: dict[str, Any]) -> None:
        """Settle an item as its child says."""
        if item.is_cancelled:
            self.cancel(item)
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
                self.suspect(item, _end_without_death(outcome))

    def _finish(self, item: ClaimedItem, outcome: dict[str, Any]) -> None:
        entry = {**settlement(item, outcome["action"]), "pushes": outcome.get("pushes", [])}
        if item.place is None:
            entry |= self._place_of_a_bare_job(item, outcome)
        if "continuation" in outcome:
            entry["continuation"] = json.dumps(outcome["continuation"])
            entry["continue_at"] = outcome["continue_at"]
        if "progress" in outcome:
            entry["progress"] = outcome["progress"]
        if "counts" in outcome:
            entry["counts"] = outcome["counts"]
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
        reserved_bytes = self._grant.memory_bytes
        return Attempt(node=self._services.node, reserved_bytes=reserved_bytes, peak_bytes=peak_bytes)

    def _give_up(
        self, item: ClaimedItem, reason: Reason, *, cause: str, cure: str, peak_bytes: int | None = None
    ) -> None:
        """Fail an item for a reason that no child could write into the project's store."""
        failure = Failure(name=item.name, reason=reason, cause=cause, cure=cure)
        if self._is_recorded(item, failure):
            self._fail(item, failure, peak_bytes)

    def cancel(self, item: ClaimedItem, peak_bytes: int | None = None) -> None:
        """Settle a job that Celery has revoked; Celery has told its events already."""
        failure = refusals.cancelled(item.name)
        if self._is_recorded(item, failure):
            self._settler.add(failed_entry(item, self._kind.name, failure, self._attempt(peak_bytes)))

    def give_back(
        self, item: ClaimedItem, why: str, *, attempts: int = 0, estimate: str | None = None
    ) -> None:
        """Put an item back into its list, with so many attempts counted and a larger estimate, if any."""
        entry = {**settlement(item, "requeue"), "attempts": attempts}
        if estimate is not None:
            entry["estimate"] = estimate
        if attempts and item.last_end is not None:
            entry["last_end"] = item.last_end.to_text()
        self._settler.add(entry)
        item.announce_return(why)

    def count_lost(self, item: ClaimedItem, death: Death) -> None:
        """Give an item back whose spawner died: as if its node had been lost, whoever is to blame."""
        lost = {"attempts": 0, "lost": 1, "lost_on": json.dumps(self._services.node)}
        self._settler.add({**settlement(item, "requeue"), **lost})
        item.announce_return(death.cause)

    def _ask_for_more(self, item: ClaimedItem, estimate: str) -> None:
        """Give an item back with a larger estimate; one that is no larger would come back for ever."""
        grant = self._grant
        if Estimate.from_header(estimate).memory_bytes(1) > grant.memory_bytes // grant.batch:
            self.give_back(item, "it needs more memory than was reserved", estimate=estimate)
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

    def suspect(self, item: ClaimedItem, death: Death, suspects: int = 1) -> None:
        """Count an attempt, the third is the last; an item whose memory ran out gets more.

        ``suspects`` of the batch were worked on at a time, and share its peak.
        """
        self._note_end(item, death)
        if item.attempts < MAX_ATTEMPTS:
            log.warning("suspect_given_back", kind=self._kind.name, item=item.name, cause=death.cause)
            estimate = self._larger_estimate(item, death, suspects) if death.ending.is_for_memory else None
            self.give_back(item, death.cause, attempts=1, estimate=estimate)
            return
        self._give_up(
            item,
            Reason.WORKER_LOST,
            cause=f"{MAX_ATTEMPTS} attempts ended without a result; the last: {death.cause}",
            cure=_MORE_MEMORY if death.ending.is_for_memory else _LOOK_AT_THE_LOG,
            peak_bytes=death.peak_bytes,
        )

    def end_at_the_limit(self, item: ClaimedItem, death: Death) -> None:
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
            reserved_bytes=self._grant.memory_bytes,
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
