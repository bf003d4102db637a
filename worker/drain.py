"""Decides when this node drains for a large entry: takes nothing more that would put it off.

One node at a time drains, for one entry: that which waits longest of those
that fit an idle node like this one. What may run beside it is
:mod:`worker.beside`'s to say; the key is :mod:`worker.drain_key`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from governor.budget import most_memory_bytes
from governor.governor import Governor
from governor.ledger import Reservation
from governor.model import Decision, Estimate, Resources, Verdict
from tasks.kind import Kind
from worker.beside import Room, could_ever_start, fitted, need_of, room_beside, sum_of
from worker.claim import Head
from worker.drain_key import DrainSight, DrainState
from worker.logs import get_logger
from worker.queue_view import QueueView

log = get_logger(__name__)

DRAIN_AFTER_NS = 28_000_000_000
"""How long an entry waits for room to come by itself.

A busy node sees a head a second late, and some looks come after it: the drain begins within 30 s."""
_LET_GO_AFTER_NS = 30_000_000_000
"""How long the node is kept free for an entry that does not fit, though nothing runs that is in its way."""
_REST_NS = 300_000_000_000
"""How long this node then drains for nothing that needs as much."""
_LOOK_EVERY_NS = 250_000_000
_MS = 1_000_000


class Key(Protocol):
    """The drain as it is kept for all nodes."""

    def look(self, queues: QueueView, *, waited_ms: int, most_bytes: int, identity: str = "") -> DrainSight:
        """Keep what is ours, tell what may be drained for, or take it."""

    def end(self, queues: QueueView) -> None:
        """End what is ours."""


class Children(Protocol):
    """The processes that batches run in."""

    @property
    def num_processes(self) -> int:
        """Return how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainParts:
    """What of a node takes part in draining."""

    key: Key
    governor: Governor
    kinds: dict[str, Kind]
    children: Children
    is_for_others: Callable[[Head], bool]
    """Whether this node does not see the photos of a head."""
    now_ns: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """What did not fit though nothing was in its way: as much is not drained for until then."""

    need: Resources
    until_ns: int

    def covers(self, need: Resources) -> bool:
        return need.memory_bytes >= self.need.memory_bytes and (need.gpu_memory_bytes or 0) >= (
            self.need.gpu_memory_bytes or 0
        )


class Drain:
    """What this node knows of the drain, and what it has started since; main thread only.

    Invariant: while ``entry`` is there, every batch that was started since the
    drain began is in ``_beside`` until it ends.
    """

    def __init__(self, parts: DrainParts) -> None:
        self._parts = parts
        self._governor = parts.governor
        self.entry: Head | None = None
        """What is drained for; None while this node takes whatever fits."""
        self._need = Resources()
        self._beside: list[Reservation] = []
        self._is_served = False
        """The entry has its reservation in this turn."""
        self._unhindered_since_ns: int | None = None
        self._rests: list[_Rest] = []
        self._next_look_ns = 0

    # -- The key ----------------------------------------------------------------------

    def keep(self, queues: QueueView) -> None:
        """Keep the drain, if this node has it, though nothing may start now."""
        if self.entry is not None:
            self.look(queues)

    def look(self, queues: QueueView) -> None:
        """See what is drained for; take the drain where something has waited long and nobody has it.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        self._is_served = False
        now_ns = self._parts.now_ns()
        if self.entry is None and (now_ns < self._next_look_ns or not queues.large_sets()):
            return
        self._next_look_ns = now_ns + _LOOK_EVERY_NS
        sight = self._look(queues)
        if sight.state is DrainState.FREE:
            wanted = next((entry for entry in sight.entries if self._suits(entry, now_ns)), None)
            if wanted is not None:
                sight = self._look(queues, wanted.identity)
        self._see(sight, queues)

    def leave(self, queues: QueueView) -> None:
        """Let another node drain at once.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        if self.entry is not None:
            self._parts.key.end(queues)
            self.entry = None
            self._change(None)

    def _look(self, queues: QueueView, identity: str = "") -> DrainSight:
        return self._parts.key.look(
            queues,
            waited_ms=DRAIN_AFTER_NS // _MS,
            most_bytes=most_memory_bytes(self._governor.profile, self._governor.policy),
            identity=identity,
        )

    def _suits(self, entry: Head, now_ns: int) -> bool:
        """Tell whether this node could run an entry if it kept itself free for it."""
        estimate = self._estimate(entry)
        if estimate is None or not could_ever_start(estimate, self._governor.profile, self._governor.policy):
            return False
        self._rests = [rest for rest in self._rests if rest.until_ns > now_ns]
        need = need_of(estimate, self._governor.profile.gpu)
        return not self._parts.is_for_others(entry) and not any(rest.covers(need) for rest in self._rests)

    def _see(self, sight: DrainSight, queues: QueueView) -> None:
        entry = sight.entries[0] if sight.state is DrainState.HELD else None
        if entry is not None and not self._is_ours_to_run(entry, queues):
            self._parts.key.end(queues)
            entry = None
        if _identity(entry) != _identity(self.entry):
            self._change(entry)
        self.entry = entry

    def _is_ours_to_run(self, entry: Head, queues: QueueView) -> bool:
        """Tell whether this node still pulls the kind, and sees the photos."""
        is_pulled = entry.source in queues.large_sets() and self._estimate(entry) is not None
        return is_pulled and not self._parts.is_for_others(entry)

    def _change(self, entry: Head | None) -> None:
        """Begin anew: what runs now was there before this entry's turn."""
        self._beside.clear()
        self._unhindered_since_ns = None
        estimate = None if entry is None else self._estimate(entry)
        if entry is None or estimate is None:
            log.info("drain_over")
            return
        self._need = need_of(estimate, self._governor.profile.gpu)
        log.info("drain_begins", kind=entry.kind, needed_memory_bytes=self._need.memory_bytes)

    def _estimate(self, entry: Head) -> Estimate | None:
        kind = self._parts.kinds.get(entry.kind)
        return None if kind is None else entry.estimate(kind)

    def sentence(self) -> str:
        """Return what is added to what the node waits for; empty while it does not drain."""
        if self.entry is None:
            return ""
        return f"; the node is kept free for this job of {self.entry.kind}, which has waited long"

    # -- What may start ---------------------------------------------------------------

    def most_bytes(self) -> int:
        """Return how much memory another large entry may take now."""
        free_bytes = self._governor.availability().available.memory_bytes
        room = self._room()
        return free_bytes if room is None or room.memory_bytes is None else min(free_bytes, room.memory_bytes)

    def allowed(self, head: Head, estimate: Estimate) -> Estimate | None:
        """Return what a head may be admitted with: all it asks for, or less; None where it has to wait."""
        if head.is_drained_for:
            return estimate
        room = self._room()
        return estimate if room is None else fitted(estimate, self._governor.profile.gpu, room)

    def _room(self) -> Room | None:
        """Return what may start beside the entry; None where nothing is drained for."""
        if self.entry is None or self._is_served:
            return None
        beside = self._running_beside()
        room = room_beside(
            self._need,
            self._governor.availability().budget,
            sum_of(reservation.grant for reservation in beside),
        )
        is_last_child = len(beside) + 1 >= self._parts.children.num_processes
        return replace(room, cpu_threads=0) if is_last_child else room

    def _running_beside(self) -> list[Reservation]:
        self._beside = [one for one in self._beside if self._governor.reservation_is_valid(one)]
        return self._beside

    def note_reserved(self, head: Head, reservation: Reservation) -> None:
        """Remember what is about to start."""
        if head.is_drained_for:
            self._is_served = True
        elif self.entry is not None and not self._is_served:
            self._beside.append(reservation)

    def note_waiting(self, queues: QueueView, head: Head, decision: Decision) -> None:
        """Let go of an entry that does not fit though nothing is in its way, or that never will.

        Other programs may hold what it needs: the node would idle for ever.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        if not head.is_drained_for:
            return
        now_ns = self._parts.now_ns()
        if self._is_in_its_way(decision):
            self._unhindered_since_ns = None
        elif self._unhindered_since_ns is None:
            self._unhindered_since_ns = now_ns
        since_ns = self._unhindered_since_ns
        is_in_vain = since_ns is not None and now_ns - since_ns >= _LET_GO_AFTER_NS
        if is_in_vain or decision.verdict is Verdict.REJECT:
            self._let_go(queues, decision, now_ns)

    def _is_in_its_way(self, decision: Decision) -> bool:
        """Tell whether the end of a batch of this node may be what the entry waits for.

        What was started beside it is not in its way, by the rule; but the
        budget may have fallen since. Then nothing like it is started any more.
        """
        running = self._running_beside()
        if self._governor.availability().active_reservations > len(running):
            return True
        beside = sum_of(reservation.grant for reservation in running)
        amounts = (
            (decision.needed_memory_bytes, decision.available_memory_bytes, beside.memory_bytes),
            (decision.needed_gpu_memory_bytes, decision.available_gpu_memory_bytes, beside.gpu_memory_bytes),
        )
        return any((needed or 0) > (left or 0) and (taken or 0) > 0 for needed, left, taken in amounts)

    def _let_go(self, queues: QueueView, decision: Decision, now_ns: int) -> None:
        log.warning("drain_let_go", decision=decision.sentence(), again_seconds=_REST_NS // 10**9)
        self._parts.key.end(queues)
        self._rests.append(_Rest(need=self._need, until_ns=now_ns + _REST_NS))
        self.entry = None
        self._change(None)


def _identity(entry: Head | None) -> tuple[str, str] | None:
    return None if entry is None else (entry.source, entry.identity)
