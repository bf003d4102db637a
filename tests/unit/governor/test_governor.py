"""Tests of the governor's shell: books, generation, trace, policy, subscribers."""

import pytest

from governor.admission import SNAPSHOT_MAX_AGE_NS
from governor.errors import InvalidPolicyError, InvariantError, SnapshotError
from governor.governor import Governor
from governor.ledger import Ledger, Reservation, ReservationState
from governor.model import UINT64_MAX, DecisionReason, Pressure, Resources, Snapshot, Verdict
from tests.unit.governor.builders import (
    GIB,
    MIB,
    Machine,
    a_dedicated_gpu,
    a_governor,
    a_policy,
    a_profile,
    a_snapshot,
    a_uma_gpu,
    an_estimate,
)


def reserve_one(governor: Governor, machine: Machine) -> Reservation:
    """Reserve one item of 1 GiB and one thread, which fits."""
    estimate = an_estimate(min_batch=1, max_batch=1, cpu_threads=1)
    decision, reservation = governor.reserve(machine.look(), estimate, "a")

    assert reservation is not None, decision.sentence()
    return reservation


def record_one(governor: Governor, items: int = 1, peak_memory_bytes: int | None = 1) -> None:
    """Record a batch of kind "a" for which nothing was reserved."""
    governor.record_batch(
        "a",
        items=items,
        duration_ns=1,
        peak_memory_bytes=peak_memory_bytes,
        reserved_bytes=0,
        threads=1,
    )


def test_a_policy_that_does_not_fit_the_node_is_refused() -> None:
    """The constructor names what is wrong."""
    with pytest.raises(InvalidPolicyError, match="leaves nothing"):
        a_governor(policy=a_policy(memory_reserve_bytes=16 * GIB))


def test_a_reservation_is_charged_until_it_is_released_once() -> None:
    """The ledger is back at zero, and a second release changes nothing."""
    machine = Machine()
    governor = a_governor(machine)
    reservation = reserve_one(governor, machine)

    assert governor.availability().reserved == Resources(memory_bytes=GIB, cpu_threads=1)
    assert governor.reservation_is_valid(reservation)
    assert (governor.release(reservation), governor.release(reservation)) == (True, False)
    assert not governor.reservation_is_valid(reservation)
    assert reservation.state is ReservationState.RELEASED
    assert governor.availability().reserved == Resources()


def test_a_block_releases_its_reservation_even_when_it_fails() -> None:
    """The context manager releases on an exception, and tolerates an earlier release."""
    machine = Machine()
    governor = a_governor(machine)

    with pytest.raises(KeyboardInterrupt), reserve_one(governor, machine):
        raise KeyboardInterrupt
    with reserve_one(governor, machine) as reservation:
        governor.release(reservation)

    assert governor.availability().active_reservations == 0


def test_a_foreign_reservation_is_not_taken() -> None:
    """Two governors give the same ids; a handle belongs to one of them."""
    machine = Machine()
    governor, other = a_governor(machine), a_governor(machine)
    mine, foreign = reserve_one(governor, machine), reserve_one(other, machine)
    generation = governor.generation()

    assert mine.id == foreign.id
    assert not governor.release(foreign)
    assert not governor.reservation_is_valid(foreign)
    assert governor.generation() == generation


def test_deciding_reserves_nothing() -> None:
    """The same answer as reserving, without a charge or a new generation."""
    machine = Machine()
    governor = a_governor(machine)
    snapshot = machine.look()

    decided = governor.decide(snapshot, an_estimate(), "a")
    before = governor.availability()
    reserved, _ = governor.reserve(snapshot, an_estimate(), "a")

    assert decided == reserved
    assert (before.reserved, before.active_reservations) == (Resources(), 0)
    assert governor.generation() == 1


def test_the_generation_grows_by_one_on_reserve_release_and_record_only() -> None:
    """Each step, and each thing that is not a step."""
    machine = Machine()
    governor = a_governor(machine)
    seen = [governor.generation()]
    reservation = reserve_one(governor, machine)
    seen.append(governor.generation())
    governor.release(reservation)
    seen.append(governor.generation())
    record_one(governor)
    seen.append(governor.generation())

    record_one(governor, items=0)
    governor.release(reservation)
    governor.reserve(machine.look(available_bytes=0), an_estimate(), "a")
    governor.set_policy(a_policy())
    governor.availability()

    assert seen == [0, 1, 2, 3]
    assert governor.generation() == 3


def test_shrinking_frees_memory_without_a_new_generation() -> None:
    """Once, downward."""
    machine = Machine()
    governor = a_governor(machine)
    _, reservation = governor.reserve(machine.look(), an_estimate(), "a")
    assert reservation is not None

    assert governor.shrink(reservation, 3)

    assert not governor.shrink(reservation, 2)
    assert governor.availability().reserved.memory_bytes == 3 * GIB
    assert governor.generation() == 1


def test_an_unreadable_machine_reserves_nothing() -> None:
    """`reserve_available` raises before anything is decided."""

    def capture() -> Snapshot:
        raise SnapshotError

    governor = Governor(a_profile(), a_policy(), now_ns=lambda: 0, capture=capture)

    with pytest.raises(SnapshotError):
        governor.reserve_available(an_estimate(), "a")
    assert (governor.trace(), governor.generation()) == ((), 0)


def test_reserve_available_looks_at_the_machine_first() -> None:
    """Each call takes a snapshot of its own."""
    machine = Machine()
    governor = a_governor(machine)

    decision, reservation = governor.reserve_available(an_estimate(), "a")

    assert (decision.batch, reservation is not None) == (8, True)
    assert governor.trace()[-1].snapshot.captured_at_ns == machine.now_ns


def test_a_batch_with_unified_memory_is_charged_once() -> None:
    """The grant and the sums show it in the RAM only."""
    machine = Machine()
    governor = a_governor(machine, a_profile(gpu=a_uma_gpu()), a_policy(gpu_slots=1))
    estimate = an_estimate(max_batch=2, gpu_memory_fixed_bytes=MIB, gpu_slots=1)

    _, reservation = governor.reserve(machine.look(), estimate, "a")

    assert reservation is not None
    assert (reservation.grant.memory_bytes, reservation.grant.gpu_memory_bytes) == (2 * GIB + MIB, 0)
    assert governor.availability().reserved.gpu_slots == 1


def test_a_dedicated_card_is_charged_apart() -> None:
    """A second batch sees what the first left of the card."""
    machine = Machine()
    policy = a_policy(gpu_slots=2, gpu_memory_reserve_bytes=512 * MIB)
    governor = a_governor(machine, a_profile(gpu=a_dedicated_gpu()), policy)
    estimate = an_estimate(
        memory_per_item_bytes=0,
        min_batch=1,
        max_batch=1,
        cpu_threads=1,
        gpu_slots=1,
        gpu_memory_fixed_bytes=GIB,
    )
    snapshot = machine.look(gpu_memory_available_bytes=2 * GIB)
    first, _ = governor.reserve(snapshot, estimate, "a")
    second, _ = governor.reserve(snapshot, estimate, "a")

    assert (first.is_admitted, second.reason) == (True, DecisionReason.INSUFFICIENT_MEMORY)
    assert governor.availability().reserved.gpu_memory_bytes == GIB


def test_a_reading_counts_though_nothing_is_asked() -> None:
    """Unless it is stale; nobody is told of a change, and it is no decision."""
    machine = Machine()
    governor = a_governor(machine)
    governor.observe(machine.look(available_bytes=3 * GIB))
    old = machine.look(available_bytes=10 * GIB)
    machine.now_ns += SNAPSHOT_MAX_AGE_NS + 1
    governor.observe(old)

    assert governor.availability().budget.memory_bytes == 1 * GIB
    assert (governor.generation(), governor.trace()) == (0, ())


def test_availability_starts_with_the_idle_node_and_follows_the_last_snapshot() -> None:
    """Before any observation nothing is known but the totals."""
    machine = Machine()
    governor = a_governor(machine)
    before = governor.availability()
    reserve_one(governor, machine)

    after = governor.availability()

    assert (before.budget.memory_bytes, before.available.memory_bytes) == (14 * GIB, 14 * GIB)
    assert (after.budget.memory_bytes, after.available.memory_bytes) == (8 * GIB, 7 * GIB)
    assert (after.available.cpu_threads, after.active_reservations) == (14, 1)


def test_one_snapshot_is_one_observation_for_all_jobs() -> None:
    """Deciding twice on a swapping snapshot is yellow, not red."""
    machine = Machine()
    governor = a_governor(machine)
    governor.decide(machine.look(), an_estimate(), "a")
    swapping = machine.look(swapped_pages=1)

    for kind in ("a", "b", "c"):
        governor.decide(swapping, an_estimate(), kind)

    assert governor.pressure() is Pressure.YELLOW


def test_the_id_after_the_last_is_refused() -> None:
    """G-D01: no reservation, no charge, no new generation, the same answer from both calls."""
    machine = Machine()
    governor = a_governor(machine)
    governor._ledger = Ledger(next_id=UINT64_MAX)
    last = reserve_one(governor, machine)

    decision, reservation = governor.reserve(machine.look(), an_estimate(), "a")

    assert (last.id, governor.reservation_is_valid(last)) == (UINT64_MAX, True)
    assert (decision.verdict, decision.reason) == (Verdict.REJECT, DecisionReason.IDS_EXHAUSTED)
    assert reservation is None
    assert governor.decide(machine.look(), an_estimate(), "a") == decision
    assert (governor.availability().reserved.memory_bytes, governor.generation()) == (GIB, 1)


def test_the_trace_tells_why() -> None:
    """Reason, numbers, snapshot and reservation of every decision."""
    machine = Machine()
    governor = a_governor(machine)
    reservation = reserve_one(governor, machine)
    governor.decide(machine.look(available_bytes=3 * GIB), an_estimate(), "b")

    first, second = governor.trace()

    assert (first.kind, first.reservation_id, first.decision.batch) == ("a", reservation.id, 1)
    assert (second.kind, second.reservation_id, second.at_ns) == ("b", None, machine.now_ns)
    assert second.sentence() == "WAIT INSUFFICIENT_MEMORY: needs 2.00 GiB, 0 bytes free of 1.00 GiB"


def test_the_trace_keeps_the_last_256() -> None:
    """The 257th pushes out the first."""
    machine = Machine()
    governor = a_governor(machine)
    snapshot = machine.look()
    for number in range(257):
        governor.decide(snapshot, an_estimate(), f"{number}")

    trace = governor.trace()

    assert (len(trace), trace[0].kind, trace[-1].kind) == (256, "1", "256")


def test_a_recorded_batch_adapts_the_next_of_its_kind_only() -> None:
    """Items that cost twice their estimate halve the batch."""
    machine = Machine()
    governor = a_governor(machine)
    record_one(governor, items=1, peak_memory_bytes=2 * GIB)
    snapshot = machine.look()

    assert governor.decide(snapshot, an_estimate(), "a").batch == 4
    assert governor.decide(snapshot, an_estimate(), "b").batch == 8


@pytest.mark.parametrize("peak", [0, None])
def test_an_unknown_peak_takes_a_place_and_adapts_nothing(peak: int | None) -> None:
    """Zero is how an older program said unknown."""
    machine = Machine()
    governor = a_governor(machine)
    record_one(governor, peak_memory_bytes=peak)

    assert [record.peak_memory_bytes for record in governor.history("a")] == [None]
    assert governor.decide(machine.look(), an_estimate(), "a").batch == 8


def test_the_charged_batch_may_differ_from_the_recorded_items() -> None:
    """Forty pairs of two sources cost what two sources cost."""
    machine = Machine()
    governor = a_governor(machine)
    governor.record_batch(
        "a",
        items=40,
        batch=2,
        duration_ns=1,
        peak_memory_bytes=4 * GIB,
        reserved_bytes=2 * GIB,
        threads=1,
    )

    assert governor.decide(machine.look(), an_estimate(), "a").batch == 4


@pytest.mark.parametrize(("items", "batch"), [(-1, None), (1, 0), (1, -1)])
def test_a_batch_that_cannot_be_is_not_recorded(items: int, batch: int | None) -> None:
    """It would poison the division by the batch."""
    governor = a_governor()

    with pytest.raises(ValueError, match="no batch"):
        governor.record_batch(
            "a",
            items=items,
            batch=batch,
            duration_ns=1,
            peak_memory_bytes=1,
            reserved_bytes=1,
            threads=1,
        )
    assert (governor.history("a"), governor.generation()) == ((), 0)


def test_a_change_wakes_the_subscribers_outside_the_lock() -> None:
    """Each change once, refusals not; the callback may call the governor, from any thread."""
    machine = Machine()
    governor = a_governor(machine)
    seen: list[int] = []
    governor.subscribe(lambda: seen.append(governor.generation()))

    reservation = reserve_one(governor, machine)
    governor.release(reservation)
    governor.release(reservation)
    record_one(governor)
    record_one(governor, items=0)

    assert seen == [1, 2, 3]


def test_a_policy_replaces_the_one_in_force() -> None:
    """The next decision follows it."""
    machine = Machine()
    governor = a_governor(machine)

    assert governor.set_policy(a_policy(memory_reserve_bytes=4 * GIB))

    assert governor.policy.memory_reserve_bytes == 4 * GIB
    assert governor.decide(machine.look(), an_estimate(), "a").batch == 6


def test_an_invalid_policy_changes_nothing() -> None:
    """It is refused whole."""
    governor = a_governor()

    assert not governor.set_policy(a_policy(io_slots=0, memory_reserve_bytes=GIB))

    assert governor.policy == a_policy()


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({"memory_reserve_bytes": 9 * GIB}, True),
        ({"memory_reserve_bytes": 9 * GIB + 1}, False),
        ({"cpu_reserve_threads": 15}, True),
        ({"io_slots": 1}, True),
        ({"memory_reserve_bytes": 0}, True),
    ],
)
def test_a_policy_must_leave_what_is_reserved(changes: dict[str, int], is_taken: bool) -> None:  # noqa: FBT001
    """1 GiB, one thread and one slot are reserved; 10 GiB are available."""
    machine = Machine()
    governor = a_governor(machine)
    estimate = an_estimate(min_batch=1, max_batch=1, cpu_threads=1, io_slots=1)
    governor.reserve(machine.look(), estimate, "a")

    assert governor.set_policy(a_policy(**changes)) is is_taken
    governor.check()


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({"cpu_reserve_threads": 14}, True),
        ({"cpu_reserve_threads": 15}, False),
        ({"io_slots": 2}, True),
        ({"io_slots": 1}, False),
    ],
)
def test_a_policy_must_leave_the_threads_and_slots_in_use(changes: dict[str, int], is_taken: bool) -> None:  # noqa: FBT001
    """Two threads and two IO slots are reserved."""
    machine = Machine()
    governor = a_governor(machine)
    governor.reserve(machine.look(), an_estimate(cpu_threads=2, io_slots=2), "a")

    assert governor.set_policy(a_policy(**changes)) is is_taken


def test_a_policy_is_not_refused_for_a_shortage_it_does_not_cause() -> None:
    """The batch's own memory made the machine short; an equal or softer policy still passes."""
    machine = Machine()
    governor = a_governor(machine)
    reserve_one(governor, machine)
    governor.decide(machine.look(available_bytes=GIB), an_estimate(), "b")

    assert governor.set_policy(a_policy(cpu_psi_limit_percent=None))
    assert governor.set_policy(a_policy(memory_reserve_bytes=GIB))
    assert not governor.set_policy(a_policy(memory_reserve_bytes=15 * GIB + 1))


def test_a_closed_governor_admits_nothing_and_takes_back_everything() -> None:
    """It may be closed with active reservations."""
    machine = Machine()
    governor = a_governor(machine)
    reservation = reserve_one(governor, machine)

    governor.close()
    decision, refused = governor.reserve(machine.look(), an_estimate(), "a")

    assert (decision.verdict, decision.reason, refused) == (Verdict.WAIT, DecisionReason.CLOSED, None)
    assert governor.release(reservation)
    assert governor.availability().active_reservations == 0


def test_more_reserved_than_the_node_has_is_noticed() -> None:
    """The check looks at the totals too."""
    machine = Machine()
    governor = a_governor(machine)
    reserve_one(governor, machine)
    governor._policy = a_policy(memory_reserve_bytes=15 * GIB + 1)

    with pytest.raises(InvariantError, match="is reserved of"):
        governor.check()


def test_the_future_and_the_past_leave_every_counter_alone() -> None:
    """A stale snapshot is traced and otherwise without effect."""
    machine = Machine()
    governor = a_governor(machine)
    before = governor._pressure
    machine.now_ns = 10 * GIB
    for captured_at_ns in (10 * GIB - 1_000_000_001, 10 * GIB + 1):
        stale = a_snapshot(captured_at_ns=captured_at_ns, memory_available_bytes=0, cpu_psi_percent=100.0)
        decision, reservation = governor.reserve(stale, an_estimate(), "a")
        assert (decision.reason, reservation) == (DecisionReason.STALE_SNAPSHOT, None)

    assert governor._pressure is before
    assert governor.generation() == 0
    assert governor.availability().budget.memory_bytes == 14 * GIB
