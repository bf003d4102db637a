"""Takes work: reserves for heads in order, claims in one round trip, hands batches to children.

Nothing is claimed without a reservation. Does not cover what wakes the loop
(:mod:`worker.puller`), nor heads that cannot run here (:mod:`worker.misfits`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from governor.ledger import Reservation
from governor.model import Decision, DecisionReason, Estimate, Verdict
from tasks.catalog import STAGES
from worker.batches_in_time import in_time
from worker.beside import need_of
from worker.candidates import Turns, in_order
from worker.claim import Claimed, Head, Wish
from worker.drain import DRAIN_AFTER_NS, Drain, DrainParts
from worker.drain_key import DrainKey
from worker.lease import Lease
from worker.logs import get_logger
from worker.look_ahead import LookAhead, Occupied, Veto
from worker.misfits import Misfits
from worker.node import Node
from worker.overtaking import Overtaking
from worker.pool import GovernedPool
from worker.queue_view import QueueView
from worker.reception import Reception
from worker.running_batch import BatchServices, RunningBatch
from worker.turn_taking import share_of

log = get_logger(__name__)

_BUSY_LOOK_NS = 1_000_000_000
_GOVERNOR_WAKES = {DecisionReason.SLOTS_BUSY}
"""Only a release can end these waits, and a release wakes us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeParts:
    """What of a node takes part in taking work."""

    node: Node
    pool: GovernedPool
    lease: Lease
    reception: Reception
    misfits: Misfits
    services: BatchServices
    running: set[RunningBatch]
    """The batches from dispatch to release."""


@dataclass(slots=True, kw_only=True)
class _Plan:
    """What one claim is to bring, and under which reservation each wish is."""

    wishes: list[Wish] = field(default_factory=list)
    unstarted: list[Reservation] = field(default_factory=list)
    """One for each wish; each is released, or goes with its batch."""
    free_threads: int
    """What the reservations of this plan have left of the node's CPU threads."""
    share: int | None = None
    """How many messages to take before the other nodes have had their turn; None = what there is room for."""
    wished_messages: int = 0
    waits: list[Decision] = field(default_factory=list)
    veto: Veto | None = None
    """Why the last batch that was put off for what is reckoned to come was."""
    is_over: bool = False
    """A head was refused or moved on the way: what else waits must be looked at first."""

    @property
    def has_its_share(self) -> bool:
        """Tell whether others come first now."""
        return self.share is not None and self.wished_messages >= self.share


class Intake:
    """What a node takes from its queues; main thread only."""

    def __init__(self, parts: IntakeParts) -> None:
        self._parts = parts
        self._node = parts.node
        self._governor = parts.node.governor
        self._stage_of = {
            kind.name: STAGES.index(kind.stage) if kind.stage in STAGES else len(STAGES)
            for kind in parts.node.kinds.values()
        }
        planning = parts.services.planning
        self.look_ahead = None if planning is None else LookAhead(planning=planning, kinds=parts.node.kinds)
        """None = nothing is planned, so nothing is foreseen."""
        self._waits = Overtaking()
        self._next_busy_look_ns = 0
        self._turns = Turns()
        self._drain = Drain(
            DrainParts(
                key=DrainKey(parts.lease),
                governor=parts.node.governor,
                kinds=parts.node.kinds,
                children=parts.pool,
                is_for_others=self._is_for_others,
                now_ns=time.monotonic_ns,
            )
        )
        self.waits_for: str | None = None
        """Why nothing more is started, in the governor's words."""
        self.should_retry = False
        """Something waits for the machine: neither a release nor a message will tell when it may start."""
        self.lets_others_first = False
        """There is room for more of what waits, once the other nodes have had their turn."""
        self.claims = self.empty_claims = self.messages = 0

    def take(self, queues: QueueView, *, is_last_turn: bool = False) -> bool:
        """Start as many batches as there is room for, by one claim; False when nothing that waits may start.

        No more than this node's share, where there are others: all of it
        where they have had their turn (``is_last_turn``).

        Raises:
            LeaseLostError: the lease has ended.
            SnapshotError: the machine cannot be read.
            redis.RedisError: Redis cannot be reached.
        """
        self.should_retry = self.lets_others_first = False
        plan = _Plan(free_threads=self._governor.availability().available.cpu_threads)
        if not self._has_room(plan):
            self._drain.keep(queues)
            self._look_while_busy(queues)
            return False
        if queues.large_sets():
            # What of them fits is asked by what is free now, and on an idle node nobody else has read that.
            self._governor.observe(self._node.snapshot())
        if queues.needs_look:
            queues.look(self._drain.most_bytes)
        self._drain.look(queues)
        try:
            heads = self._to_try(queues)
            if not is_last_turn:
                plan.share = share_of(sum(head.count for head in heads), self._parts.lease.live_nodes)
            self._reserve_for(heads, queues, plan)
            self._claim(queues, plan)
        finally:
            for reservation in plan.unstarted:
                self._governor.release(reservation)
        if self.lets_others_first:
            return False
        if plan.wishes or plan.is_over:
            return True
        self._on_nothing_started(plan, queues)
        return False

    def leave(self, queues: QueueView) -> None:
        """End what only a node that goes on may hold.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        self._drain.leave(queues)

    def _look_while_busy(self, queues: QueueView) -> None:
        """See what waits, once a second at most: its time counts, though it cannot be tried yet."""
        if not queues.is_stale:
            return
        now_ns = time.monotonic_ns()
        if now_ns < self._next_busy_look_ns:
            self.should_retry = True
            return
        self._next_busy_look_ns = now_ns + _BUSY_LOOK_NS
        queues.look(self._drain.most_bytes)
        self._waits.note_seen(self._ours(queues), now_ns)
        self._note_arrivals(queues, now_ns)

    def _note_arrivals(self, queues: QueueView, now_ns: int) -> None:
        if self.look_ahead is not None:
            self.look_ahead.note(queues.heads(), now_ns, self._parts.lease.server_now_ms())

    def _ours(self, queues: QueueView) -> list[Head]:
        return [head for head in queues.heads() if not self._is_for_others(head)]

    def _to_try(self, queues: QueueView) -> list[Head]:
        """Return what waits in the order to try it.

        An entry that is drained for comes first. Then within each class what
        is starved for memory: it cannot start, but is set aside to be drained
        for, before others take what is free.
        """
        heads, now_ns = self._ours(queues), time.monotonic_ns()
        self._note_arrivals(queues, now_ns)
        self._waits.note_tried(heads, now_ns)
        ordered = in_order(heads, self._stage_of, self._waits.tried, self._turns)
        ordered.sort(key=lambda head: (head.priority, not self._is_starved(head, now_ns)))
        entry = self._drain.entry
        if entry is None:
            return ordered
        return [entry, *(head for head in ordered if head.identity != entry.identity)]

    def _is_starved(self, head: Head, now_ns: int) -> bool:
        if head.is_large or not self._waits.of(head).is_starved(now_ns, DRAIN_AFTER_NS):
            return False
        estimate = head.estimate(self._node.kinds[head.kind])
        if estimate is None or not estimate.is_valid():
            return False
        needed_bytes = need_of(estimate, self._governor.profile.gpu).memory_bytes
        return needed_bytes > self._node.free_memory_bytes()

    def _is_for_others(self, head: Head) -> bool:
        """Tell whether a head's photos are not seen here, while other nodes may see them."""
        sight = self._parts.services.sight
        return sight is not None and sight.is_blind_to(head.kind, head.project)

    def _has_room(self, plan: _Plan) -> bool:
        """Tell whether threads and children are there for one more batch."""
        return plan.free_threads > 0 and self._parts.pool.idle_children > len(plan.wishes)

    # -- Reserve ----------------------------------------------------------------------

    def _reserve_for(self, heads: Sequence[Head], queues: QueueView, plan: _Plan) -> None:
        """Reserve for the first heads that may start, until there is no room or this node has its share."""
        for head in heads:
            rest: Head | None = head
            while rest is not None and self._has_room(plan):
                if plan.has_its_share:
                    self.lets_others_first = True
                    return
                rest = self._reserve_once(rest, queues, plan)
            if plan.is_over:
                return

    def _reserve_once(self, head: Head, queues: QueueView, plan: _Plan) -> Head | None:
        """Reserve one batch for a head; return what is thought to wait behind it, None when done with it."""
        kind = self._node.kinds[head.kind]
        estimate = head.estimate(kind)
        if head.mark == "bad" or estimate is None:
            self._parts.misfits.refuse_malformed(queues, head)
            plan.is_over = True
            return None
        allowed = self._drain.allowed(head, self._node.charged(kind, estimate))
        if allowed is None:
            return None
        decision, reservation = self._reserve(head, self._in_time(head, allowed, plan))
        if reservation is None:
            self._on_not_admitted(head, decision, queues, plan)
            return None
        if self._is_vetoed(head, reservation, plan):
            return None
        self._drain.note_reserved(head, reservation)
        batch = reservation.grant.batch
        plan.wishes.append(Wish(head=head, batch=batch, powers_of_two=kind.powers_of_two))
        plan.unstarted.append(reservation)
        plan.wished_messages += batch
        plan.free_threads -= reservation.grant.cpu_threads
        return _behind(head, batch)

    def _in_time(self, head: Head, estimate: Estimate, plan: _Plan) -> Estimate:
        """Ask for no larger a batch than is planned to end by the deadline of a head's job."""
        planning = self._parts.services.planning
        others = len(self._parts.running) + len(plan.unstarted)
        if planning is None:
            return estimate
        return in_time(
            estimate,
            head.contract.contract,
            lambda items: planning.plan(head.kind, items=items, others=others),
        )

    def _is_vetoed(self, head: Head, reservation: Reservation, plan: _Plan) -> bool:
        """Give a reservation back whose batch would be in the way of what is reckoned to come."""
        if self.look_ahead is None:
            return False
        now_ns = time.monotonic_ns()
        running = [
            Occupied(grant=batch.request.grant, projected_end_ns=batch.projected_end_ns or now_ns)
            for batch in self._parts.running
        ]
        running += [Occupied(grant=one.grant, projected_end_ns=now_ns) for one in plan.unstarted]
        free = self._governor.availability().available
        veto = self.look_ahead.veto(head, reservation.grant, running, free, now_ns)
        if veto is None:
            return False
        self._governor.release(reservation)
        plan.veto = veto
        return True

    def _reserve(self, head: Head, estimate: Estimate) -> tuple[Decision, Reservation | None]:
        return self._governor.reserve(
            self._node.snapshot(),
            estimate,
            head.kind,
            waiting_items=1 if head.runs_alone else head.count,
            nodes=self._parts.lease.live_nodes,
        )

    def _on_not_admitted(self, head: Head, decision: Decision, queues: QueueView, plan: _Plan) -> None:
        misfits = self._parts.misfits
        if decision.verdict is Verdict.REJECT and misfits.reject(queues, head, decision):
            plan.is_over = True
            return
        self._drain.note_waiting(queues, head, decision)
        misfits.on_wait(queues, head, decision, self._waits.of(head))
        plan.waits.append(decision)

    # -- Claim ------------------------------------------------------------------------

    def _claim(self, queues: QueueView, plan: _Plan) -> None:
        """Claim what was wished for, and start what is there of it."""
        if not plan.wishes:
            return
        turn = queues.turn(plan.wishes, self._drain.most_bytes)
        reservations = tuple(plan.unstarted)
        for wish, reservation, claimed in zip(plan.wishes, reservations, turn.claimed, strict=True):
            if self._start(wish.head.kind, reservation, claimed):
                plan.unstarted.remove(reservation)
                self._turns.note(wish.head.project)
                self._waits.note_started(wish.head.source, time.monotonic_ns())
        if turn.error is not None:
            raise turn.error

    def _start(self, kind_name: str, reservation: Reservation, claimed: list[Claimed]) -> bool:
        """Hand what was claimed to the pool as one batch; False where there is nothing to run."""
        self.claims += 1
        self.messages += len(claimed)
        self.empty_claims += not claimed
        items = self._parts.reception.receive(claimed, kind_name)
        if not items:
            return False
        if len(items) < reservation.grant.batch:
            self._governor.shrink(reservation, len(items))
        kind = self._node.kinds[kind_name]
        batch = RunningBatch(items, kind, reservation, self._parts.services)
        self._parts.running.add(batch)
        self._parts.pool.submit(batch)
        return True

    def _on_nothing_started(self, plan: _Plan, queues: QueueView) -> None:
        """Note why, for the registry and the log, and whether trying again may help."""
        waits = plan.waits
        reason = f"{waits[0].sentence()}{self._drain.sentence()}" if waits else None
        if plan.veto is not None:
            reason = plan.veto.sentence()
        is_told = waits and waits[0].reason in _GOVERNOR_WAKES and plan.veto is None
        if reason != self.waits_for and reason is not None and not is_told:
            log.info("waiting", decision=reason)
        self.waits_for = reason
        # Large entries of which none fits are no heads, so none of them has been decided on.
        self.should_retry = (plan.veto is not None or bool(queues.large_sets())) or any(
            wait.verdict is Verdict.WAIT and wait.reason not in _GOVERNOR_WAKES for wait in waits
        )


def _behind(head: Head, batch: int) -> Head | None:
    """Return a head as it will be when a batch of it is gone; None where nothing alike is known to wait."""
    if head.runs_alone or head.count <= batch:
        return None
    return replace(head, count=head.count - batch)
