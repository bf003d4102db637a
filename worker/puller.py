"""Holds the node's loop over its queues: what wakes it, its connections, its lease.

The consumer step (:mod:`worker.consumer`) drives it from Celery's event loop;
everything here runs in the main thread. Does not decide what is taken
(:mod:`worker.intake`) nor what becomes of it (:mod:`worker.running_batch`).
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import redis
from celery.signals import worker_shutting_down

from governor.errors import SnapshotError
from tasks.kind import Kind
from tasks.store import Store
from worker.claim import LeaseLostError
from worker.connections import TrackedClient, plain_client
from worker.doorbell import Doorbell
from worker.duration_log import DurationLog
from worker.factor_store import FLUSH_SECONDS, keeper_of
from worker.intake import Intake, IntakeParts
from worker.lease import Lease
from worker.live_nodes import describe_folders
from worker.logs import get_logger
from worker.misfits import Misfits
from worker.node import Node
from worker.node_entry import NodeEntry
from worker.pool import GovernedPool
from worker.project_queue import ProjectQueue
from worker.queue_at_start import SetupWarnings, check_rights
from worker.queue_view import QueueView
from worker.reception import Reception
from worker.redis_scripts import load_all
from worker.running_batch import BatchServices, RunningBatch
from worker.settle import Settler
from worker.sight import Sight
from worker.store_health import StoreHealth
from worker.superseding import MOST_MESSAGES
from worker.turn_taking import wait_seconds

log = get_logger(__name__)

_RETRY_SECONDS = 0.25
"""A head that waits for the machine is tried again after this."""
_SWEEP_SECONDS = 5.0
"""Bounds the damage of a lost wake-up."""
_MOST_TURNS = 64
_SETTLE_WITHIN_SECONDS = 0.005
"""What is finished waits no longer for the next claim to take it along, or for others like it."""


class Puller:
    """The node's loop over its queues."""

    def __init__(self, node: Node, pool: GovernedPool, receive: Callable[[Any], list[Any]]) -> None:
        self._node = node
        settings = node.settings
        folders = describe_folders(settings)
        self._folders = {} if settings.single_node else folders
        self._store = StoreHealth(settings.store, folders["store_id"], self._on_store_change)
        self._entry = NodeEntry(node)
        self.lease = Lease(
            settings.redis_url, settings.name, settings.lease_seconds, self.describe, node.place
        )
        self._keeper = keeper_of(node, self.lease)
        self._bell = Doorbell(self.pull)
        self.settler = Settler(self.lease, on_added=self._settle_soon)
        self._client = plain_client(settings.redis_url)
        self._reception = Reception(
            Store(settings.store, settings.import_roots),
            self.settler,
            receive,
            self.lease.server_now_ms,
            self._store,
            self._next_messages,
        )
        if node.planning is not None:
            self._reception.likely_ns = node.planning.likely_ns
        self._setup = SetupWarnings()
        registry = ProjectQueue(settings.redis_url)
        sight = None if settings.single_node else Sight(settings.name, registry.nodes, time.monotonic_ns)
        self._running: set[RunningBatch] = set()
        self._misfits = Misfits(node, self._reception)
        self._intake = Intake(
            IntakeParts(
                node=node,
                pool=pool,
                lease=self.lease,
                reception=self._reception,
                misfits=self._misfits,
                services=BatchServices(
                    governor=node.governor,
                    settler=self.settler,
                    record_failure=self._reception.record_failure,
                    on_over=self._running.discard,
                    planning=node.planning,
                    durations=None if settings.durations is None else DurationLog(settings.durations),
                    sight=sight,
                    node=settings.name,
                    store=self._store,
                ),
                running=self._running,
            )
        )
        self._tracked: TrackedClient | None = None
        self._queues: QueueView | None = None
        self._hub: Any = None
        self._kinds: tuple[Kind, ...] = ()
        self._is_pulling = self._is_busy = False
        self._retry_is_due = self._settling_is_due = self._turn_is_due = False
        self._settle_again_seconds = 0.0
        """By CLOCK_MONOTONIC: after an outage that was met in a warm shutdown."""
        self.wake_ups = 0
        node.governor.subscribe(self._on_governor_change)
        pool.on_room = self._bell.ring
        pool.on_served = self._settle_outside_the_loop

    # -- Life in Celery's consumer ----------------------------------------------------

    def connect(self) -> None:
        """Open the connections and take the lease.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        self.disconnect()
        check_rights(self._client, list(self._node.kinds))
        load_all(self._client)
        if not self._node.settings.single_node:  # There the server is our own.
            self._setup.look(self._client)
        self._tracked = TrackedClient(self._node.settings.redis_url)
        self._queues = QueueView(self._tracked, self.lease, self.settler)
        self._queues.watch(self._kinds)
        self.lease.ensure(self._client)
        if self._keeper is not None:
            self._keeper.restore(self._client)
        self._give_back_strays()
        self._is_pulling = True

    def register(self, hub: Any) -> None:
        """Listen in Celery's event loop, and pull what is there."""
        self._hub = hub
        self._retry_is_due = self._settling_is_due = self._turn_is_due = False
        self._bell.register(hub)
        if self._tracked is not None:
            hub.add_reader(self._tracked.fileno(), self._on_invalidation)
        hub.call_repeatedly(_SWEEP_SECONDS, self._sweep)
        if self._keeper is not None:
            hub.call_repeatedly(FLUSH_SECONDS, self._keeper.put_down)
        worker_shutting_down.connect(self._on_shutting_down)
        self._bell.ring()

    def consume(self, kind_names: list[str]) -> None:
        """Pull these kinds from now on (``celery control add_consumer / cancel_consumer``)."""
        known = [self._node.kinds[name] for name in kind_names if name in self._node.kinds]
        self._kinds = tuple(kind for kind in known if self._node.takes(kind))
        if self._queues is not None:
            self._queues.watch(self._kinds)
        self._bell.ring()

    def consumes(self, kind_name: str) -> bool:
        """Tell whether this kind is pulled."""
        return any(kind.name == kind_name for kind in self._kinds)

    def _on_shutting_down(self, **_: Any) -> None:
        """Claim nothing more, and let the loop see at once that the worker is to stop.

        Celery's signal handler only notes it: the loop would read that when
        its poll has timed out, up to a second later.
        """
        self.stop()
        self._bell.ring()

    def stop(self) -> None:
        """Claim nothing more; running batches go on."""
        self._is_pulling = False

    def leave(self) -> None:
        """Let another node drain at once: this one takes nothing more."""
        if self._queues is None:
            return
        try:
            self._intake.leave(self._queues)
        except redis.RedisError as error:
            log.warning("drain_not_ended", error=str(error), cure="it ends by itself within 15 s")

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
        if self._keeper is not None:
            self._keeper.close()
        try:
            self.settler.flush(self._client)
            given_back = self.lease.release(self._client)
            log.info("lease_released", given_back=given_back)
        except redis.RedisError as error:
            log.warning("lease_not_released", error=str(error), cure="it runs out by itself")
        self._hub = None
        self._store.close()
        self.disconnect()
        self._client.close()

    def describe(self) -> dict[str, str]:
        """Return the node's entry in the registry; called by the lease's thread."""
        folders = {**self._folders, "store_id": self._store.store_id} if self._folders else {}
        planning = self.describe_planning()
        plans = {} if planning is None else {"planning": json.dumps(planning)}
        waits_for = self._store.waits_for() or self._intake.waits_for or ""
        return {**self._entry.fields(waits_for), **folders, **plans}

    def describe_planning(self) -> dict[str, Any] | None:
        """Return what is planned and learned here, for ``inspect stats``; None where nothing is."""
        planning = self._node.planning
        if planning is None:
            return None
        look_ahead = self._intake.look_ahead
        return {
            **planning.describe(),
            **(self._keeper.describe() if self._keeper else {}),
            "vetoes": 0 if look_ahead is None else look_ahead.vetoes,
            "drops": {"stale": self._reception.stale, "superseded": self._reception.superseded},
        }

    def reset_factors(self) -> None:
        """Forget what was learned of durations."""
        if self._node.planning is not None:
            self._node.planning.forget()

    def counters(self) -> dict[str, int]:
        """Return counts since the start, for ``inspect stats``."""
        return {
            "claims": self._intake.claims,
            "empty_claims": self._intake.empty_claims,
            "messages": self._intake.messages,
            "wake_ups": self.wake_ups,
            "settled": self.settler.settled,
            "waiting_settlements": len(self.settler),
            "refused_settlements": self.settler.refused,
            "given_back": self.lease.given_back,
            "reception_errors": self._reception.unexpected_errors,
            "dropped_stale": self._reception.stale,
            "dropped_superseded": self._reception.superseded,
            "running_batches": len(self._running),
        }

    # -- What wakes the loop ----------------------------------------------------------

    def _on_governor_change(self) -> None:
        if not self._is_busy:  # Our own reservations and empty claims must not wake us.
            self._bell.ring()

    def _on_store_change(self) -> None:
        """Tell the registry at once, and look again; called by any thread."""
        self.lease.tell_soon()
        self._bell.ring()

    def _on_invalidation(self) -> None:
        if self._queues is None:
            return
        self.wake_ups += 1
        if self._queues.forget_what_has_changed():
            self._come_in_turn()

    def _come_in_turn(self, *, is_last_turn: bool = False) -> None:
        """Pull once it is this node's turn among all that were woken; at once where it is the only one."""
        if self._turn_is_due:
            return
        wait = wait_seconds(self.lease.live_nodes, has_work=bool(self._running), draw=random.random)
        if wait == 0 or self._hub is None:
            self.pull(is_last_turn=is_last_turn)
            return
        self._turn_is_due = True
        self._hub.call_later(wait, self._take_turn, is_last_turn)

    def _take_turn(self, is_last_turn: bool) -> None:  # noqa: FBT001 - a timer's argument
        self._turn_is_due = False
        self.pull(is_last_turn=is_last_turn)

    def _settle_soon(self) -> None:
        if self._hub is not None and not self._settling_is_due:
            self._settling_is_due = True
            self._hub.call_later(_SETTLE_WITHIN_SECONDS, self._settle)

    def _settle(self) -> None:
        self._settling_is_due = False
        self.settler.flush(self._client)

    def _settle_outside_the_loop(self) -> None:
        """Settle what ends in a warm shutdown: the last job may take days. An outage holds up nobody."""
        if time.monotonic() < self._settle_again_seconds:
            return
        try:
            self.settler.flush(self._client)
        except redis.RedisError as error:
            log.warning("not_settled_yet", error=str(error), waiting=len(self.settler))
            self._settle_again_seconds = time.monotonic() + _SWEEP_SECONDS

    def _retry(self) -> None:
        self._retry_is_due = False
        self.pull()

    def _sweep(self) -> None:
        """Look at everything, in case a wake-up was lost."""
        self._give_back_strays()
        if self._queues is not None:
            self._queues.forget_all()
        self.pull()
        if self._node.settings.single_node and self._may_take and self._queues is not None:
            with self._lease_kept():
                self._misfits.fail_blocked(self._queues, is_idle=not self._running)

    def _give_back_strays(self) -> None:
        """Give back messages that are claimed under our lease, but that we know nothing of.

        The reply to a claim can be lost (a slow server, a broken connection),
        and a server that was frozen runs the claim of a dead connection later.
        """
        ours = self.settler.tags().union(*(batch.open_tags() for batch in self._running))
        held = cast("list[bytes]", self._client.hkeys(self.lease.inflight_key))
        for tag in sorted({tag.decode() for tag in held} - ours):
            log.warning("stray_given_back", tag=tag)
            self.settler.add({"tag": tag, "action": "requeue", "attempts": 0})

    def _next_messages(self, name: str) -> list[bytes]:
        """Return the next messages of a list, the next in line first."""
        return cast("list[bytes]", self._client.lrange(name, -MOST_MESSAGES, -1))[::-1]

    # -- Pull -------------------------------------------------------------------------

    def pull(self, *, is_last_turn: bool = False) -> None:
        """Settle what is finished, and take work until nothing that waits can start here.

        What is beyond this node's share waits until the others have had their
        turn; ``is_last_turn`` tells that they have.

        Raises:
            redis.RedisError: Redis cannot be reached; Celery reconnects, nothing is lost.
        """
        if self._is_busy:
            return
        if self._may_take and self._queues is not None:
            self._take_from(self._queues, is_last_turn=is_last_turn)
            if self._intake.lets_others_first:
                self._come_in_turn(is_last_turn=True)
        self.settler.flush(self._client)  # What no claim has taken along.

    @property
    def _may_take(self) -> bool:
        """Tell whether anything may be claimed: without its store every job would fail."""
        return self._is_pulling and not self._store.is_away

    def _take_from(self, queues: QueueView, *, is_last_turn: bool) -> None:
        self._is_busy = True
        try:
            with self._lease_kept():
                self._take_all(queues, is_last_turn=is_last_turn)
        finally:
            self._is_busy = False

    def _take_all(self, queues: QueueView, *, is_last_turn: bool) -> None:
        for _ in range(_MOST_TURNS):
            # A signal may have come meanwhile.
            if not self._is_pulling or not self._intake.take(queues, is_last_turn=is_last_turn):
                break
        else:
            self._bell.ring()  # More to do, but others have waited: events, control, children.
        if self._intake.should_retry:
            self._retry_later()

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

    def _retry_later(self) -> None:
        if not self._retry_is_due:
            self._retry_is_due = True
            self._hub.call_later(_RETRY_SECONDS, self._retry)
