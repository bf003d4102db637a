"""Turns claimed messages into items: reads them, parks the early ones, passes them through Celery.

Celery's own reception sends the event ``task-received``, honours revocation and
expiry, and refuses unknown tasks; what it does not want run is settled here.
Does not cover running (:mod:`worker.running_batch`).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tasks.errors import Failure, StoreError
from tasks.store import Store
from worker import refusals
from worker.claim import Claimed
from worker.claimed_item import ClaimedItem, LeaseChannel, read_item
from worker.logs import get_logger
from worker.settle import Settler, failed_entry

log = get_logger(__name__)

MAX_LOST_NODES = 10


class Reception:
    """Receives claimed messages; main thread only.

    ``receive`` passes a message to Celery and returns the requests born of it.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        receive: Callable[[Any], list[Any]],
    ) -> None:
        self._store = store
        self._settler = settler
        self._receive = receive
        self._channel = LeaseChannel(self._on_refused)
        self._refused: set[str] = set()

    def receive(self, claimed: list[Claimed], kind: str) -> list[ClaimedItem]:
        """Return the items to run; the others are settled."""
        items = []
        for message in claimed:
            item = self._read(message, kind)
            if item is None or self._is_given_up(item, kind) or self._is_parked(item):
                continue
            if self._is_accepted(item, kind):
                items.append(item)
        return items

    def refuse(self, message: Claimed, kind: str, failure: Failure) -> None:
        """Fail a claimed message without running it."""
        item = self._read(message, kind)
        if item is not None:
            self._fail(item, kind, refusals.named(failure, item.name))

    def record_failure(self, item: ClaimedItem, failure: Failure) -> None:
        """Write a failure that no child could write into the project's store."""
        if item.place is None:
            return
        try:
            project = self._store.project(item.place.project)
            project.record_failure(item.place.stage, item.place.item, failure)
        except StoreError as error:
            log.error("failure_not_recorded", item=item.name, error=str(error))

    def _read(self, message: Claimed, kind: str) -> ClaimedItem | None:
        try:
            return read_item(message, self._channel)
        except (ValueError, KeyError, TypeError) as error:
            log.error("message_unreadable", kind=kind, error=str(error), cure="dropped")
            report = refusals.undecodable_report(kind, error)
            self._settler.add({"tag": message.tag, "action": "failed", "report": report})
            return None

    def _is_parked(self, item: ClaimedItem) -> bool:
        """Park a message with a time of arrival in Redis, never in this worker."""
        delay_ms = _delay_ms(item.eta)
        if delay_ms > 0:
            self._settler.add({"tag": item.tag, "action": "park", "attempts": 0, "delay_ms": delay_ms})
        return delay_ms > 0

    def _is_accepted(self, item: ClaimedItem, kind: str) -> bool:
        """Let Celery receive a message; what it does not want run is settled as failed."""
        self._refused.clear()
        requests = self._receive(item.message)
        # The request's own name may be a shadow that the client chose for its display.
        if requests and item.task == kind:
            item.request = requests[0]
            return True
        self._fail(item, kind, self._why_not(item, kind, requests))
        return False

    def _why_not(self, item: ClaimedItem, kind: str, requests: list[Any]) -> Failure:
        if requests:
            item.request = requests[0]
            return refusals.unknown_task(item.name, item.task, kind)
        if item.tag in self._refused:
            return refusals.unknown_task(item.name, item.task)
        return refusals.cancelled(item.name)

    def _is_given_up(self, item: ClaimedItem, kind: str) -> bool:
        """Fail a job that too many nodes were lost with: it may be what kills them."""
        if item.lost < MAX_LOST_NODES:
            return False
        self._fail(item, kind, refusals.too_many_lost_nodes(item.name, item.lost))
        return True

    def _on_refused(self, tag: str) -> None:
        """Celery does not know the task, or cannot read the message."""
        self._refused.add(tag)

    def _fail(self, item: ClaimedItem, kind: str, failure: Failure) -> None:
        log.warning("job_failed", kind=kind, name=failure.name, cause=failure.cause)
        self.record_failure(item, failure)
        self._settler.add(failed_entry(item, kind, failure))
        item.announce_failure(failure)


def _delay_ms(eta: str | None) -> int:
    """Return the milliseconds until a message's time of arrival; 0 = now."""
    if not eta:
        return 0
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return 0  # Run now rather than never.
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return max(0, int((due - datetime.now(UTC)).total_seconds() * 1000))
