"""Holds the one public class: the owner of a node's budgets.

It locks, keeps the books and the trace, and tells who waits. What it answers
is decided by the pure ``governor.admission``.
"""

import threading
from collections.abc import Callable

from governor import admission, budget
from governor import policy as policies
from governor.errors import InvalidPolicyError, InvariantError
from governor.history import BatchHistory, BatchRecord
from governor.ledger import Ledger, Reservation
from governor.model import (
    Availability,
    Decision,
    DecisionReason,
    Estimate,
    HardwareProfile,
    Policy,
    Pressure,
    Resources,
    Snapshot,
    Verdict,
)
from governor.pressure import PressureState, observe
from governor.request import Request, Situation
from governor.trace import TraceEntry, new_trace


class Governor:
    """The only owner of one node's RAM, GPU, CPU thread and IO slot budgets.

    It runs no job, interrupts none, and guarantees no allocation. Every method
    may be called from any thread; each call sees and leaves consistent books.

    ``now_ns`` is CLOCK_MONOTONIC, the clock of the snapshots. ``capture``
    reads a new snapshot; it is called outside the lock.

    Raises:
        InvalidPolicyError: the policy does not fit the profile.
    """

    def __init__(
        self,
        profile: HardwareProfile,
        policy: Policy,
        *,
        now_ns: Callable[[], int],
        capture: Callable[[], Snapshot],
    ) -> None:
        _refuse_invalid_policy(policy, profile)
        self._profile = profile
        self._policy = policy
        self._now_ns = now_ns
        self._capture = capture
        self._changed = threading.Condition()
        self._ledger = Ledger()
        self._history = BatchHistory()
        self._pressure = PressureState()
        self._observed: Snapshot | None = None
        self._trace = new_trace()
        self._generation = 0
        self._subscribers: list[Callable[[], None]] = []
        self._is_closed = False

    @property
    def profile(self) -> HardwareProfile:
        """What the node owns."""
        return self._profile

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy

    def decide(
        self,
        snapshot: Snapshot,
        estimate: Estimate,
        kind: str,
        waiting_items: int | None = None,
        nodes: int = 1,
    ) -> Decision:
        """Answer like :meth:`reserve`, but reserve nothing.

        The snapshot is observed (the pressure may change), the generation stays.
        """
        request = Request(estimate=estimate, waiting_items=waiting_items, nodes=nodes)
        with self._changed:
            decision, _ = self._answer(request, kind, snapshot, reserving=False)
        return decision

    def reserve(
        self,
        snapshot: Snapshot,
        estimate: Estimate,
        kind: str,
        waiting_items: int | None = None,
        nodes: int = 1,
    ) -> tuple[Decision, Reservation | None]:
        """Decide, and charge what was granted.

        ``waiting_items`` and ``nodes`` ask for a share instead of all that is
        free, see :class:`governor.request.Request`. The reservation is there
        exactly when the decision is START or REDUCE; release it once.
        """
        request = Request(estimate=estimate, waiting_items=waiting_items, nodes=nodes)
        with self._changed:
            decision, reservation = self._answer(request, kind, snapshot, reserving=True)
        if reservation is not None:
            self._tell_subscribers()
        return decision, reservation

    def reserve_available(
        self, estimate: Estimate, kind: str, waiting_items: int | None = None, nodes: int = 1
    ) -> tuple[Decision, Reservation | None]:
        """Reserve on a snapshot taken now.

        Raises:
            SnapshotError: the machine cannot be read; nothing was decided or reserved.
        """
        return self.reserve(self._capture(), estimate, kind, waiting_items, nodes)

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of a reading for which nothing is asked; a stale one changes nothing.

        :meth:`availability` and :meth:`pressure` follow it.
        """
        with self._changed:
            if admission.is_fresh(snapshot, self._now_ns()):
                self._note(observe(self._pressure, snapshot, self._policy), snapshot)

    def budget_on(self, snapshot: Snapshot) -> Resources:
        """Return what a reading leaves to hand out, what is reserved included; takes no note of it."""
        return budget.live_budget(self._profile, self.policy, snapshot)

    def shrink(self, reservation: Reservation, batch: int) -> bool:
        """Lower a reservation to the items that were really there, before dispatch.

        Once, and only downward. False: not active here, already shrunk, or
        ``batch`` not in 1..granted - 1; then nothing changed. The generation stays.
        """
        with self._changed:
            return self._ledger.shrink(reservation, batch)

    def release(self, reservation: Reservation) -> bool:
        """Give a reservation back; True exactly once, else nothing changed."""
        with self._changed:
            is_released = self._ledger.close(reservation)
            if is_released:
                self._grow_generation()
        if is_released:
            self._tell_subscribers()
        return is_released

    def reservation_is_valid(self, reservation: Reservation) -> bool:
        """Tell whether a reservation is active in this governor."""
        with self._changed:
            return self._ledger.holds(reservation)

    def record_batch(  # noqa: PLR0913 - named facts of one batch, measured in different places
        self,
        kind: str,
        *,
        items: int,
        duration_ns: int,
        peak_memory_bytes: int | None,
        reserved_bytes: int,
        threads: int,
        batch: int | None = None,
    ) -> None:
        """Remember a finished batch of a kind; ``items`` 0 changes nothing at all.

        ``items`` is the recorded size (of pairs generated, say); ``batch`` the
        size that was charged, where it differs. A peak of 0 or None is unknown.

        Raises:
            ValueError: ``items`` is negative or ``batch`` is below 1.
        """
        if items == 0:
            return
        charged_batch = items if batch is None else batch
        if items < 0 or charged_batch < 1:
            msg = f"a batch of {charged_batch} with {items} recorded items is no batch"
            raise ValueError(msg)
        record = BatchRecord(
            batch=charged_batch,
            items=items,
            duration_ns=duration_ns,
            peak_memory_bytes=peak_memory_bytes or None,
            reserved_bytes=reserved_bytes,
            threads=threads,
        )
        with self._changed:
            self._history.add(kind, record)
            self._grow_generation()
        self._tell_subscribers()

    def history(self, kind: str) -> tuple[BatchRecord, ...]:
        """Return the last eight batches of a kind, oldest first."""
        with self._changed:
            return self._history.of(kind)

    def availability(self) -> Availability:
        """Return the budget of the last observed snapshot, what is reserved and what is left.

        Before any snapshot the budget is that of the idle node.
        """
        with self._changed:
            total = self._budget(self._policy)
            return Availability(
                budget=total,
                reserved=self._ledger.reserved,
                available=budget.remaining(total, self._ledger.reserved),
                active_reservations=self._ledger.active_reservations,
            )

    def pressure(self) -> Pressure:
        """Return the colour of the last observation."""
        with self._changed:
            return self._pressure.colour

    def generation(self) -> int:
        """Return a number that grows by 1 on each reserve, release and non-empty record."""
        with self._changed:
            return self._generation

    def wait_for_change(self, seen: int, timeout_seconds: float) -> int:
        """Wait until the generation differs from ``seen``; return it.

        Returns at once when it differs already or the governor is closed, and
        at the latest after ``timeout_seconds``.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._generation != seen or self._is_closed, timeout_seconds)
            return self._generation

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back after each change of the generation, in the thread that caused it.

        The lock is not held then. The callback must be short and must not raise.
        """
        with self._changed:
            self._subscribers.append(callback)

    def set_policy(self, policy: Policy) -> bool:
        """Replace the policy; False: refused, nothing changed.

        Refused are a policy that is not valid on this node, and one that lowers
        a budget below what is reserved now.
        """
        with self._changed:
            if policies.violations(policy, self._profile) or self._takes_what_is_reserved(policy):
                return False
            self._policy = policy
            return True

    def close(self) -> None:
        """Admit nothing more and wake all who wait; active reservations may still be released."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def trace(self) -> tuple[TraceEntry, ...]:
        """Return the last 256 decisions, oldest first."""
        with self._changed:
            return tuple(self._trace)

    def check(self) -> None:
        """Validate the books; tests call it after every step.

        Raises:
            InvariantError: the sums are not those of the active reservations, or
                more is reserved than the idle node has.
        """
        with self._changed:
            self._ledger.check()
            reserved, ceiling = self._ledger.reserved, budget.most(self._profile, self._policy)
            if budget.exceeds(reserved, ceiling):
                msg = f"{reserved} is reserved of {ceiling}"
                raise InvariantError(msg)

    def _answer(
        self, request: Request, kind: str, snapshot: Snapshot, *, reserving: bool
    ) -> tuple[Decision, Reservation | None]:
        at_ns = self._now_ns()
        decision = self._decide(request, kind, snapshot, at_ns)
        reservation = None
        if reserving and decision.is_admitted:
            charge = budget.charge_of(request.estimate, self._profile.gpu)
            reservation = self._ledger.open(kind, decision, charge, self.release)
            self._grow_generation()
        entry = TraceEntry(
            at_ns=at_ns,
            kind=kind,
            decision=decision,
            snapshot=snapshot,
            reservation_id=None if reservation is None else reservation.id,
        )
        self._trace.append(entry)
        return decision, reservation

    def _decide(self, request: Request, kind: str, snapshot: Snapshot, at_ns: int) -> Decision:
        if self._is_closed:
            return _CLOSED
        situation = Situation(
            now_ns=at_ns,
            profile=self._profile,
            policy=self._policy,
            snapshot=snapshot,
            pressure=self._pressure,
            history=self._history.of(kind),
            reserved=self._ledger.reserved,
        )
        decision, pressure = admission.decide(request, situation)
        self._note(pressure, snapshot)
        return _IDS_EXHAUSTED if decision.is_admitted and self._ledger.is_exhausted else decision

    def _note(self, pressure: PressureState, snapshot: Snapshot) -> None:
        if pressure is not self._pressure:
            self._pressure, self._observed = pressure, snapshot

    def _budget(self, policy: Policy) -> Resources:
        if self._observed is None:
            return budget.most(self._profile, policy)
        return budget.live_budget(self._profile, policy, self._observed)

    def _takes_what_is_reserved(self, policy: Policy) -> bool:
        """Compare the live budgets, and those of the idle node: a live one may be at 0 already."""
        before_and_after = (
            (self._budget(self._policy), self._budget(policy)),
            (budget.most(self._profile, self._policy), budget.most(self._profile, policy)),
        )
        reserved = self._ledger.reserved
        return any(budget.falls_below(reserved, before, after) for before, after in before_and_after)

    def _grow_generation(self) -> None:
        self._generation += 1
        self._changed.notify_all()

    def _tell_subscribers(self) -> None:
        with self._changed:
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            callback()


_CLOSED = Decision(verdict=Verdict.WAIT, reason=DecisionReason.CLOSED, detail="the governor is closed")
_IDS_EXHAUSTED = Decision(
    verdict=Verdict.REJECT,
    reason=DecisionReason.IDS_EXHAUSTED,
    detail="no reservation id is left: restart the node",
)


def _refuse_invalid_policy(policy: Policy, profile: HardwareProfile) -> None:
    broken = policies.violations(policy, profile)
    if broken:
        raise InvalidPolicyError("; ".join(broken))
