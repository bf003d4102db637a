"""Turns claimed messages into items: reads them, parks the early ones, passes them through Celery.

Celery's own reception sends the event ``task-received``, honours revocation and
expiry, and refuses unknown tasks; what it does not want run is settled here.
Whatever a message holds, it costs that message only, never the node.
Does not cover running (:mod:`worker.running_batch`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import redis
from kombu.exceptions import OperationalError

from tasks.errors import Failure, StoreError
from tasks.store import Store
from worker import quarantine, refusals
from worker.claim import Claimed
from worker.claimed_item import ClaimedItem, LeaseChannel, read_item, unread_item
from worker.contracts import NS_PER_MS
from worker.dead_jobs import DeadEnding
from worker.logs import get_logger
from worker.settle import Settler, failed_entry
from worker.store_health import StoreAwayError, StoreHealth, until_it_is_back
from worker.superseding import NextMessages, superseded

log = get_logger(__name__)

MAX_LOST_NODES = 10
_BROKER_IS_AWAY = (redis.RedisError, OperationalError)


class Reception:
    """Receives claimed messages; main thread only.

    ``receive`` passes a message to Celery and returns the requests born of it. ``server_now_ms`` is Redis's
    clock: those of nodes differ.
    """

    def __init__(
        self,
        store: Store,
        settler: Settler,
        receive: Callable[[Any], list[Any]],
        server_now_ms: Callable[[], int],
        health: StoreHealth | None = None,
        next_messages: NextMessages = lambda _list: (),
    ) -> None:
        """``health`` is the store's; None where nobody asks. ``next_messages`` tells what waits behind."""
        self._store = store
        self._health = health
        self._settler = settler
        self._receive = receive
        self._server_now_ms = server_now_ms
        self._next_messages = next_messages
        self.likely_ns: Callable[[str], int] = lambda _kind: 0
        """Tells how long a job of a kind is likely to take here; 0 where nobody plans."""
        self.stale = self.superseded = 0
        """Jobs that were dropped."""
        self._channel = LeaseChannel(self._on_refused)
        self._refused: set[str] = set()
        self.unexpected_errors = 0
        """Messages that failed over an error that nobody foresaw; its traceback is in the log."""

    def receive(self, claimed: list[Claimed], kind: str) -> list[ClaimedItem]:
        """Return the items to run; the others are settled.

        Raises:
            redis.RedisError, kombu's OperationalError: the broker cannot be reached.
        """
        items = []
        for message in claimed:
            with self._boundary(message, kind):
                item = self._read(message, kind)
                if item is not None and self._may_run(item, kind) and not self._is_stale(item, kind):
                    items.append(item)
        return self._latest(items)

    def _latest(self, items: list[ClaimedItem]) -> list[ClaimedItem]:
        """Return the items that no newer one has superseded; the others are dropped."""
        tags = superseded(items, self._next_messages)
        for item in items:
            if item.tag in tags:
                self.superseded += 1
                self._drop(item)
        return [item for item in items if item.tag not in tags]

    def _is_stale(self, item: ClaimedItem, kind: str) -> bool:
        """Drop an item whose result would be too old; of a project it fails, for the project tells of it."""
        contract, now_ms = item.contract, self._server_now_ms()
        if contract.contract.max_age_ns is None:
            return False
        takes_ns = self.likely_ns(kind)
        if not contract.is_stale(now_ms, takes_ns):
            return False
        self.stale += 1
        if item.place is None:
            self._drop(item)
        else:
            max_age_ms = contract.contract.max_age_ns // NS_PER_MS
            age_ms = now_ms - contract.captured_ms(now_ms) + takes_ns // NS_PER_MS
            self._fail(item, kind, refusals.stale(item.name, age_ms, max_age_ms))
        return True

    def _drop(self, item: ClaimedItem) -> None:
        self._settler.add({"tag": item.tag, "action": "drop"})
        item.announce_drop()

    def refuse(self, message: Claimed, kind: str, failure: Failure) -> None:
        """Fail a claimed message without running it.

        Raises:
            redis.RedisError, kombu's OperationalError: the broker cannot be reached.
        """
        with self._boundary(message, kind):
            item = self._read(message, kind)
            if item is not None:
                named = refusals.named(failure, item.name)
                self._fail(item, kind, refusals.after_memory_kill(named, item.last_end))

    def record_failure(self, item: ClaimedItem, failure: Failure) -> None:
        """Write a failure that no child could write into the project's store.

        Raises:
            StoreAwayError: the store cannot be worked on now: the item is not to be failed yet.
        """
        try:
            if self._health is not None and item.place is not None:
                self._health.check()
            quarantine.record_failure(self._store, item.place, failure)
        except StoreError as error:
            if self._health is not None:
                self._health.judge(error)
            log.error("failure_not_recorded", item=item.name, error=str(error))

    @contextmanager
    def _boundary(self, message: Claimed, kind: str) -> Iterator[None]:
        """Let whatever the reception of one message raises cost that message only."""
        try:
            yield
        except _BROKER_IS_AWAY:
            raise
        except Exception as error:
            # A task boundary. Messages come from anybody, and Celery raises all sorts of errors over
            # headers it does not expect. Outside of here the error would end this worker, and then
            # every other worker that is given the same message.
            self.unexpected_errors += 1
            log.exception("reception_failed", kind=kind)
            self._fail_unread(message, kind, f"{type(error).__name__}: {error}")

    def _read(self, message: Claimed, kind: str) -> ClaimedItem | None:
        """Return the item of a message; None where it cannot be read and is settled."""
        try:
            return read_item(message, self._channel)
        except ValueError as error:
            self._fail_unread(message, kind, str(error))
            return None

    def _fail_unread(self, message: Claimed, kind: str, cause: str) -> None:
        item = unread_item(message)
        self._fail(item, kind, refusals.undecodable(item.name or kind, cause))

    def _may_run(self, item: ClaimedItem, kind: str) -> bool:
        """Tell whether an item is to be run; otherwise it is settled."""
        return (
            not self._is_given_up(item, kind) and not self._is_parked(item) and self._is_accepted(item, kind)
        )

    def _is_parked(self, item: ClaimedItem) -> bool:
        """Park a message with a time of arrival in Redis, never in this worker."""
        due_ms = _due_ms(item.eta)
        is_early = due_ms > self._server_now_ms()
        if is_early:
            self._settler.add({"tag": item.tag, "action": "park", "attempts": 0, "due_ms": due_ms})
        return is_early

    def _is_accepted(self, item: ClaimedItem, kind: str) -> bool:
        """Let Celery receive a message; what cannot run is settled as failed."""
        self._refused.clear()
        requests = self._receive(item.message)
        item.request = requests[0] if requests else None
        failure = self._objection(item, kind)
        if failure is not None:
            self._fail(item, kind, failure)
        return failure is None

    def _objection(self, item: ClaimedItem, kind: str) -> Failure | None:
        """Return why an item that Celery has received, or would not, cannot run."""
        if item.tag in self._refused:
            known = item.task == kind
            return refusals.invalid_task(item.name) if known else refusals.unknown_task(item.name, item.task)
        if item.request is None:
            return refusals.cancelled(item.name)
        # The request's own name may be a shadow that the client chose for its display.
        if item.task != kind:
            return refusals.unknown_task(item.name, item.task, kind)
        return refusals.positional_arguments(item.name) if item.arguments else None

    def _is_given_up(self, item: ClaimedItem, kind: str) -> bool:
        """Fail a job that too many nodes were lost with: it may be what kills them."""
        if item.lost < MAX_LOST_NODES:
            return False
        failure = refusals.too_many_lost_nodes(item.name, item.lost, item.lost_on)
        self._fail(item, kind, failure, DeadEnding.LOST_NODE)
        return True

    def _on_refused(self, tag: str) -> None:
        """Celery does not know the task, or finds the message invalid."""
        self._refused.add(tag)

    def _fail(self, item: ClaimedItem, kind: str, failure: Failure, ending: DeadEnding | None = None) -> None:
        try:
            self.record_failure(item, failure)
        except StoreAwayError as error:
            self._settler.add(until_it_is_back(item))
            if item.request is not None:
                item.announce_return(str(error))
            return
        log.warning("job_failed", kind=kind, name=failure.name, cause=failure.cause)
        self._settler.add(failed_entry(item, kind, failure, ending=ending))
        item.announce_failure(failure)


def _due_ms(eta: str | None) -> int:
    """Return a message's time of arrival in milliseconds since 1970; 0 = it has none."""
    if not eta:
        return 0
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return 0  # Run now rather than never.
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return int(due.timestamp() * 1000)
