"""A random walk over the governor's calls, compared with a naive model after each step."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from governor.ledger import Reservation
from governor.model import Estimate, Gpu, Policy, Pressure, Snapshot
from tests.unit.governor.builders import (
    GIB,
    Machine,
    a_dedicated_gpu,
    a_governor,
    a_policy,
    a_profile,
    a_uma_gpu,
)

KINDS = ("a", "b")

estimates = st.builds(
    Estimate,
    memory_fixed_bytes=st.integers(0, 2 * GIB),
    memory_per_item_bytes=st.integers(0, 2 * GIB),
    min_batch=st.integers(1, 3),
    max_batch=st.integers(3, 16),
    cpu_threads=st.integers(1, 20),
    io_slots=st.integers(0, 2),
) | st.builds(
    Estimate,
    memory_per_item_bytes=st.integers(0, GIB),
    gpu_memory_fixed_bytes=st.integers(0, GIB),
    gpu_memory_per_item_bytes=st.integers(0, GIB),
    gpu_slots=st.integers(1, 2),
    max_batch=st.integers(1, 8),
)
policies = st.builds(
    Policy,
    memory_reserve_bytes=st.integers(GIB, 8 * GIB),
    memory_emergency_bytes=st.integers(0, GIB),
    cpu_reserve_threads=st.integers(0, 15),
    io_slots=st.integers(1, 8),
    gpu_memory_reserve_bytes=st.integers(0, GIB),
    gpu_slots=st.integers(1, 2),
    cpu_psi_limit_percent=st.sampled_from([None, 20]),
)


class GovernorWalk(RuleBasedStateMachine):
    """Reserve, shrink, release, record, look and change the policy in any order."""

    reservations = Bundle("reservations")

    @initialize(gpu=st.sampled_from([None, a_uma_gpu(), a_dedicated_gpu()]))
    def start(self, gpu: Gpu | None) -> None:
        """Start a governor on one of three nodes."""
        self.machine = Machine()
        self.governor = a_governor(
            self.machine, a_profile(gpu=gpu), a_policy(memory_emergency_bytes=GIB, gpu_slots=1)
        )
        self.active: list[Reservation] = []
        self.generation = 0
        self.colour = Pressure.GREEN
        self.snapshot = self.machine.look()

    @rule(
        available_bytes=st.integers(0, 20 * GIB) | st.integers(6 * GIB, 20 * GIB),
        swapped_pages=st.sampled_from([0, 0, 0, 1]),
        cpu_psi_percent=st.sampled_from([None, 0.0, 20.0]),
        gpu_bytes=st.none() | st.integers(0, 4 * GIB),
    )
    def look(
        self,
        available_bytes: int,
        swapped_pages: int,
        cpu_psi_percent: float | None,
        gpu_bytes: int | None,
    ) -> None:
        """Take a new snapshot."""
        self.snapshot = self.machine.look(
            available_bytes=available_bytes,
            swapped_pages=swapped_pages,
            cpu_psi_percent=cpu_psi_percent,
            gpu_memory_available_bytes=gpu_bytes,
        )

    @rule(nanoseconds=st.integers(0, 400_000_000))
    def let_time_pass(self, nanoseconds: int) -> None:
        """Let the snapshot age, perhaps beyond use."""
        self.machine.now_ns += nanoseconds

    @rule(
        target=reservations,
        estimate=estimates,
        kind=st.sampled_from(KINDS),
        waiting_items=st.none() | st.integers(0, 40),
        nodes=st.integers(1, 3),
    )
    def reserve(self, estimate: Estimate, kind: str, waiting_items: int | None, nodes: int) -> object:
        """Reserve; what is granted fits the budget seen, and `decide` says the same before."""
        reserved_before = self.governor.availability().reserved
        expected = self.governor.decide(self.snapshot, estimate, kind, waiting_items, nodes)
        decision, reservation = self.governor.reserve(self.snapshot, estimate, kind, waiting_items, nodes)

        assert decision == expected
        assert decision.is_admitted == (reservation is not None)
        if reservation is None:
            return multiple()
        self.active.append(reservation)
        self.generation += 1
        assert_within_budget(reservation, reserved_before.memory_bytes, self.snapshot, self.governor.policy)
        return reservation

    @rule(reservation=reservations, batch=st.integers(0, 16))
    def shrink(self, reservation: Reservation, batch: int) -> None:
        """Shrink: the memory never grows, and a refused call changes nothing."""
        before = reservation.grant
        is_shrunk = self.governor.shrink(reservation, batch)

        assert is_shrunk == (reservation.grant != before)
        assert reservation.grant.memory_bytes <= before.memory_bytes

    @rule(reservation=consumes(reservations))
    def release(self, reservation: Reservation) -> None:
        """Release twice: the first call counts."""
        self.active.remove(reservation)
        self.generation += 1

        assert self.governor.release(reservation)
        assert not self.governor.release(reservation)

    @rule(kind=st.sampled_from(KINDS), items=st.integers(0, 8), peak_memory_bytes=st.integers(0, 16 * GIB))
    def record(self, kind: str, items: int, peak_memory_bytes: int) -> None:
        """Record a batch; an empty one changes nothing."""
        self.generation += 0 if items == 0 else 1
        self.governor.record_batch(
            kind,
            items=items,
            duration_ns=1,
            peak_memory_bytes=peak_memory_bytes,
            reserved_bytes=GIB,
            threads=1,
        )

        assert len(self.governor.history(kind)) <= 8

    @rule(policy=policies)
    def change_policy(self, policy: Policy) -> None:
        """Change the policy; a refusal leaves the old one."""
        before = self.governor.policy
        is_taken = self.governor.set_policy(policy)

        assert self.governor.policy == (policy if is_taken else before)

    @invariant()
    def the_books_are_right(self) -> None:
        """Compare the sums with the active reservations; nothing is negative."""
        self.governor.check()
        availability = self.governor.availability()
        grants = [reservation.grant for reservation in self.active]

        assert availability.active_reservations == len(grants)
        assert availability.reserved.memory_bytes == sum(grant.memory_bytes for grant in grants)
        assert availability.reserved.gpu_memory_bytes == sum(grant.gpu_memory_bytes for grant in grants)
        assert availability.reserved.cpu_threads == sum(grant.cpu_threads for grant in grants)
        assert availability.reserved.gpu_slots == sum(grant.gpu_slots for grant in grants)
        assert availability.reserved.io_slots == sum(grant.io_slots for grant in grants)
        assert min(availability.available.memory_bytes, availability.available.cpu_threads) >= 0

    @invariant()
    def the_generation_counts(self) -> None:
        """Expect one step for each reserve, release and record, and for nothing else."""
        assert self.governor.generation() == self.generation

    @invariant()
    def red_never_turns_green(self) -> None:
        """Watch the colour: between two steps at most one snapshot is observed."""
        before, self.colour = self.colour, self.governor.pressure()

        assert (before, self.colour) != (Pressure.RED, Pressure.GREEN)


def assert_within_budget(
    reservation: Reservation, reserved_bytes: int, snapshot: Snapshot, policy: Policy
) -> None:
    """Compare a new grant with the memory that the snapshot offered, computed anew."""
    budget_bytes = min(snapshot.memory_available_bytes, 16 * GIB) - policy.memory_reserve_bytes
    grant = reservation.grant

    assert grant.memory_bytes <= max(0, budget_bytes - reserved_bytes)
    free_gpu_bytes = max(0, (snapshot.gpu_memory_available_bytes or 0) - policy.gpu_memory_reserve_bytes)
    assert grant.gpu_memory_bytes <= free_gpu_bytes
    assert 1 <= grant.cpu_threads <= 16 - policy.cpu_reserve_threads


GovernorWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGovernorWalk = GovernorWalk.TestCase
