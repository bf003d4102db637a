"""Pulls work: look at the queues, reserve, claim, hand the batch to a child. Nothing is claimed unreserved.

The consumer step (:mod:`worker.consumer`) drives it from Celery's event loop;
everything here runs in the main thread. Does not decide what becomes of a
claimed item (:mod:`worker.running_batch`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import redis

from governor.errors import SnapshotError
from governor.ledger import Reservation
from governor.model import UINT64_MAX, Decision, DecisionReason, Estimate, Verdict
from tasks.catalog import STAGES
from tasks.errors import Failure
from tasks.kind import Kind
from tasks.store import Store
from worker import refusals
from worker.candidates import WaitingTimes, in_order
from worker.claim import Head, LeaseLostError, QueueView, set_aside
from worker.claimed_item import ClaimedItem
from worker.connections import TrackedClient, plain_client
from worker.doorbell import Doorbell
from worker.lease import Lease
from worker.live_nodes import describe_folders
from worker.logs import get_logger
from worker.node import Node
from worker.pool import GovernedPool
from worker.reception import Reception
from worker.redis_scripts import load_all
from worker.running_batch import BatchServices, RunningBatch
from worker.settle import Settler

log = get_logger(__name__)

_RETRY_SECONDS = 0.25
"""A head that waits for the machine is tried again after this."""
_SWEEP_SECONDS = 5.0
"""Bounds the damage of a lost wake-up."""
_MOST_STEPS = 64
_SET_ASIDE_AFTER_NS = 1_000_000_000
_BLOCKED_AFTER_NS = 30_000_000_000
_GOVERNOR_WAKES = {DecisionReason.SLOTS_BUSY}
"""Only a release can end these waits, and a release wakes us."""


class Puller:
    """The node's loop over its queues."""

    def __init__(self, node: Node, pool: GovernedPool, receive: Callable[[Any], list[Any]]) -> None:
        self._node = node
        self._pool = pool
        self._stage_of = {
            kind.name: STAGES.index(kind.stage) if kind.stage in STAGES else len(STAGES)
            for kind in node.kinds.values()
        }
        settings = node.settings
        self._folders = {} if settings.single_node else describe_folders(settings)
        self.lease = Lease(settings.redis_url, settings.name, settings.lease_seconds, self.describe)
        self._bell = Doorbell(self._on_ring)
        self.settler = Settler(self.lease, on_added=self._bell.ring)
        self._reception = Reception(Store(settings.store, settings.import_roots), self.settler, receive)
        self._services = BatchServices(
            governor=node.governor,
            settler=self.settler,
            record_failure=self._reception.record_failure,
            on_over=self._on_batch_over,
        )
        self._client = plain_client(settings.redis_url)
        self._tracked: TrackedClient | None = None
        self._queues: QueueView | None = None
        self._hub: Any = None
        self._kinds: tuple[Kind, ...] = ()
        self._batches: set[RunningBatch] = set()
        self._times = WaitingTimes()
        self._blocked_times = WaitingTimes()
        self._last_wait: str | None = None
        self._is_pulling = self._is_busy = self._retry_is_due = False
        self.claims = self.empty_claims = self.messages = self.wake_ups = 0
        node.governor.subscribe(self._on_governor_change)

    # -- Life in Celery's consumer ----------------------------------------------------

    def connect(self) -> None:
        """Open the connections and take the lease.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        self.disconnect()
        load_all(self._client)
        self._tracked = TrackedClient(self._node.settings.redis_url)
        self._queues = QueueView(self._tracked, self.lease)
        self.lease.ensure(self._client)
        self._give_back_strays()
        self._is_pulling = True

    def register(self, hub: Any) -> None:
        """Listen in Celery's event loop, and pull what is there."""
        self._hub = hub
        self._retry_is_due = False
        self._bell.register(hub)
        if self._tracked is not None:
            hub.add_reader(self._tracked.fileno(), self._on_invalidation)
        hub.call_repeatedly(_SWEEP_SECONDS, self._sweep)
        self._bell.ring()

    def consume(self, kind_names: list[str]) -> None:
        """Pull these kinds from now on (``celery control add_consumer / cancel_consumer``)."""
        self._kinds = tuple(self._node.kinds[name] for name in kind_names if name in self._node.kinds)
        self._bell.ring()

    def consumes(self, kind_name: str) -> bool:
        """Tell whether this kind is pulled."""
        return any(kind.name == kind_name for kind in self._kinds)

    def stop(self) -> None:
        """Claim nothing more; running batches go on."""
        self._is_pulling = False

    def disconnect(self) -> None:
        """Close the tracked connection; the loop's reader must be gone already or going."""
        if self._tracked is not None:
            if self._hub is not None:
                self._hub.remove(self._tracked.fileno())
            self._tracked.close()
            self._tracked = self._queues = None

    def shutdown(self) -> None:
        """Settle what is finished and end the lease: what is left goes back at once."""
        self.stop()
        try:
            self.settler.flush(self._client)
            given_back = self.lease.release(self._client)
            log.info("lease_released", given_back=given_back)
        except redis.RedisError as error:
            log.warning("lease_not_released", error=str(error), cure="it runs out by itself")
        self._hub = None
        self.disconnect()
        self._client.close()

    def describe(self) -> dict[str, str]:
        """Return the node's entry in the registry; called by the lease's thread."""
        governor = self._node.governor
        free = governor.availability()
        return {
            "name": self._node.settings.name,
            "pressure": str(governor.pressure()),
            "budget_memory_bytes": str(free.budget.memory_bytes),
            "reserved_memory_bytes": str(free.reserved.memory_bytes),
            "budget_cpu_threads": str(free.budget.cpu_threads),
            "reserved_cpu_threads": str(free.reserved.cpu_threads),
            "active_reservations": str(free.active_reservations),
            "waits_for": self._last_wait or "",
            **self._folders,
        }

    def counters(self) -> dict[str, int]:
        """Return counts since the start, for ``inspect stats``."""
        return {
            "claims": self.claims,
            "empty_claims": self.empty_claims,
            "messages": self.messages,
            "wake_ups": self.wake_ups,
            "settled": self.settler.settled,
            "waiting_settlements": len(self.settler),
            "refused_settlements": self.settler.refused,
            "given_back": self.lease.given_back,
            "reception_errors": self._reception.unexpected_errors,
            "running_batches": len(self._batches),
        }

    # -- What wakes the loop ----------------------------------------------------------

    def _on_governor_change(self) -> None:
        if not self._is_busy:  # Our own reservations and empty claims must not wake us.
            self._bell.ring()

    def _on_invalidation(self) -> None:
        if self._tracked is None:
            return
        self.wake_ups += 1
        self._tracked.drain()
        self.pull()

    def _on_ring(self) -> None:
        self.flush()
        self.pull()

    def _retry(self) -> None:
        self._retry_is_due = False
        self.pull()

    def _sweep(self) -> None:
        self._give_back_strays()
        self.pull()
        if self._node.settings.single_node and self._is_pulling and self._queues is not None:
            with self._lease_kept():
                self._fail_blocked(self._queues)

    def flush(self) -> None:
        """Settle what is finished.

        Raises:
            redis.RedisError: Redis cannot be reached; Celery reconnects, nothing is lost.
        """
        self.settler.flush(self._client)

    def _give_back_strays(self) -> None:
        """Give back messages that are claimed under our lease, but that we know nothing of.

        The reply to a claim can be lost (a slow server, a broken connection),
        and a server that was frozen runs the claim of a dead connection later.
        """
        ours = self.settler.tags().union(*(batch.open_tags() for batch in self._batches))
        held = cast("list[bytes]", self._client.hkeys(self.lease.inflight_key))
        for tag in sorted({tag.decode() for tag in held} - ours):
            log.warning("stray_given_back", tag=tag)
            self.settler.add({"tag": tag, "action": "requeue", "attempts": 0})

    # -- Pull: look, reserve, claim, dispatch -----------------------------------------

    def pull(self) -> None:
        """Take work until nothing that waits can start here."""
        if self._is_busy or not self._is_pulling:
            return
        self._is_busy = True
        try:
            with self._lease_kept():
                for _ in range(_MOST_STEPS):
                    if not self._has_room() or not self._take_one_batch():
                        break
                else:
                    self._bell.ring()  # More to do, but others have waited: events, control, settlements.
        finally:
            self._is_busy = False
        self.flush()  # What was parked, refused or cancelled on the way.

    @contextmanager
    def _lease_kept(self) -> Iterator[None]:
        """Take the lease anew where a claim finds it ended, and look again; start nothing unmeasured."""
        try:
            yield
        except LeaseLostError:
            log.error("lease_had_ended", when="before a claim", cure="taking a new one")
            self.lease.ensure(self._client)
            self._bell.ring()
        except SnapshotError as error:
            log.error("machine_unreadable", error=str(error), cure="nothing is started")
            self._retry_later()

    def _has_room(self) -> bool:
        has_thread = self._node.governor.availability().available.cpu_threads > 0
        return has_thread and self._pool.has_idle_child

    def _take_one_batch(self) -> bool:
        """Start the first candidate that may; False when none may."""
        if self._queues is None or not self._kinds:
            return False
        heads = self._queues.look(self._kinds, self._node.governor.availability().available.memory_bytes)
        self._times.note(heads, time.monotonic_ns())
        waits: list[Decision] = []
        for head in in_order(heads, self._stage_of, self._times):
            wait = self._try(self._queues, head)
            if wait is None:
                return True
            waits.append(wait)
        self._on_nothing_started(waits)
        return False

    def _try(self, queues: QueueView, head: Head) -> Decision | None:
        """Reserve for a head and claim; None when the queues have changed, else why it must wait."""
        estimate = head.estimate(self._node.kinds[head.kind])
        if head.mark == "bad" or estimate is None:
            self._refuse(head, refusals.malformed(head, self._node.kinds[head.kind]))
            return None
        decision, reservation = self._reserve(head, estimate)
        if reservation is not None:
            self._claim_under(queues, reservation, head)
            return None
        if decision.verdict is Verdict.REJECT and self._reject(head, decision):
            return None
        if self._has_waited_for_memory(head, decision):
            set_aside(self._client, head, decision.needed_memory_bytes or 0, only_if_it_blocks=True)
        return decision

    def _reserve(self, head: Head, estimate: Estimate) -> tuple[Decision, Reservation | None]:
        waiting_items = 1 if head.is_large or head.mark == "solo" else head.count
        return self._node.governor.reserve(
            self._node.snapshot(),
            estimate,
            head.kind,
            waiting_items=waiting_items,
            nodes=self.lease.live_nodes,
        )

    def _claim_under(self, queues: QueueView, reservation: Reservation, head: Head) -> None:
        """Claim up to the granted batch; without anything to run the reservation ends at once."""
        self.claims += 1
        is_dispatched = False
        try:
            kind = self._node.kinds[head.kind]
            claimed = queues.claim(head, reservation.grant.batch, powers_of_two=kind.powers_of_two)
            self.messages += len(claimed)
            self.empty_claims += not claimed
            is_dispatched = self._dispatch(self._reception.receive(claimed, head.kind), reservation)
        finally:
            if not is_dispatched:
                self._node.governor.release(reservation)

    def _dispatch(self, items: list[ClaimedItem], reservation: Reservation) -> bool:
        """Hand a batch to the pool; False where there is nothing to run."""
        if not items:
            return False
        if len(items) < reservation.grant.batch:
            self._node.governor.shrink(reservation, len(items))
        kind = self._node.kinds[reservation.kind]
        batch = RunningBatch(items, kind, reservation, self._services)
        self._batches.add(batch)
        self._pool.submit(batch)
        return True

    def _on_batch_over(self, batch: RunningBatch) -> None:
        self._batches.discard(batch)

    def _on_nothing_started(self, waits: list[Decision]) -> None:
        """Arrange to try again, and note why, for the registry and the log."""
        reason = waits[0].sentence() if waits else None
        if reason != self._last_wait and reason is not None and waits[0].reason not in _GOVERNOR_WAKES:
            log.info("waiting", decision=reason)
        self._last_wait = reason
        may_start_soon = [wait for wait in waits if wait.verdict is Verdict.WAIT]
        if any(wait.reason not in _GOVERNOR_WAKES for wait in may_start_soon):
            self._retry_later()

    def _retry_later(self) -> None:
        if not self._retry_is_due:
            self._retry_is_due = True
            self._hub.call_later(_RETRY_SECONDS, self._retry)

    # -- What cannot run here ---------------------------------------------------------

    def _has_waited_for_memory(self, head: Head, decision: Decision) -> bool:
        since_ns = self._times.since_ns(head)
        is_short = decision.reason is DecisionReason.INSUFFICIENT_MEMORY
        if not is_short or head.is_large or since_ns is None:
            return False
        return time.monotonic_ns() - since_ns > _SET_ASIDE_AFTER_NS

    def _reject(self, head: Head, decision: Decision) -> bool:
        """Fail what no node can run, or move what this one cannot out of the way; False: it stays."""
        if decision.reason is DecisionReason.INVALID_ESTIMATE:
            self._refuse(head, refusals.malformed(head, self._node.kinds[head.kind]))
            return True
        if self._node.settings.single_node or decision.reason is DecisionReason.ESTIMATE_TOO_LARGE:
            self._refuse(head, refusals.too_large(decision, self._node.memory_option_for(decision)))
            return True
        is_for_another_node = decision.reason in {DecisionReason.IMPOSSIBLE_ON_NODE, DecisionReason.NO_GPU}
        if head.is_large or not is_for_another_node:
            return False
        set_aside(self._client, head, decision.needed_memory_bytes or 0, only_if_it_blocks=False)
        return True

    def _fail_blocked(self, queues: QueueView) -> None:
        """Fail what has not fitted for 30 s, though nothing runs here and no other node will come."""
        now_ns = time.monotonic_ns()
        large = [head for head in queues.look(self._kinds, UINT64_MAX) if head.is_large]
        self._blocked_times.note([] if self._batches else large, now_ns)
        for head in large:
            estimate = head.estimate(self._node.kinds[head.kind])
            since_ns = self._blocked_times.since_ns(head)
            if estimate is None:
                self._refuse(head, refusals.malformed(head, self._node.kinds[head.kind]))
                continue
            if since_ns is None or now_ns - since_ns < _BLOCKED_AFTER_NS:
                continue
            decision = self._node.governor.decide(self._node.snapshot(), estimate, head.kind)
            if not decision.is_admitted:
                self._refuse(head, refusals.too_large(decision, self._node.memory_option_for(decision)))

    def _refuse(self, head: Head, failure: Failure) -> None:
        """Claim one message without a reservation, to fail it: no code of a job runs."""
        if self._queues is not None:
            for message in self._queues.claim(head, 1):
                self._reception.refuse(message, head.kind, failure)
            self._bell.ring()
