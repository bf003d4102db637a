"""The owner's scenarios, step by step, through the public class."""

from collections.abc import Iterator

import pytest

from governor.governor import Governor
from governor.model import Decision, DecisionReason, Estimate, Pressure, Verdict
from tests.unit.governor.builders import (
    GIB,
    MIB,
    Machine,
    a_dedicated_gpu,
    a_governor,
    a_policy,
    a_profile,
    a_uma_gpu,
    an_estimate,
)

GREEN, YELLOW, RED = Pressure.GREEN, Pressure.YELLOW, Pressure.RED


class Host:
    """A governed machine of the scenarios; each look is a new snapshot."""

    def __init__(self, governor: Governor, machine: Machine) -> None:
        self.governor = governor
        self.machine = machine

    def decide(
        self, estimate: Estimate | None = None, *, available_bytes: int = 10 * GIB, swapped_pages: int = 0
    ) -> Decision:
        """Look at the machine and decide."""
        snapshot = self.machine.look(available_bytes=available_bytes, swapped_pages=swapped_pages)
        return self.governor.decide(snapshot, estimate or an_estimate(), "kind")


@pytest.fixture
def host() -> Iterator[Host]:
    """Give the 16 CPU / 16 GiB host, and check its books at the end."""
    machine = Machine()
    host = Host(a_governor(machine), machine)
    yield host
    host.governor.check()


def test_ten_gib_give_eight_items_and_fifteen_threads(host: Host) -> None:
    """Sixteen threads were wished: reduced."""
    decision = host.decide()

    assert (decision.verdict, decision.batch, decision.cpu_threads) == (Verdict.REDUCE, 8, 15)


@pytest.mark.parametrize(
    ("available_bytes", "verdict", "batch"), [(6 * GIB, Verdict.REDUCE, 4), (3 * GIB, Verdict.WAIT, 0)]
)
def test_less_memory_gives_less(host: Host, available_bytes: int, verdict: Verdict, batch: int) -> None:
    """Four items of 6 GiB; 3 GiB are not enough for two."""
    decision = host.decide(available_bytes=available_bytes)

    assert (decision.verdict, decision.batch) == (verdict, batch)


def test_eight_gib_per_item_never_fit(host: Host) -> None:
    """Two of them are more than the host has."""
    decision = host.decide(an_estimate(memory_per_item_bytes=8 * GIB))

    assert (decision.verdict, decision.reason) == (Verdict.REJECT, DecisionReason.IMPOSSIBLE_ON_NODE)


def test_swapping_and_the_way_back(host: Host) -> None:
    """Baseline, yellow, red, and every third healthy look a step back."""
    one = an_estimate(min_batch=1)
    assert (host.decide().batch, host.governor.pressure()) == (8, GREEN)
    assert (host.decide(swapped_pages=1).batch, host.governor.pressure()) == (4, YELLOW)
    assert (host.decide(swapped_pages=1).reason, host.governor.pressure()) == ("PRESSURE_RED", RED)
    assert [host.decide().reason for _ in range(2)] == ["PRESSURE_RED"] * 2
    assert (host.decide().reason, host.governor.pressure()) == ("PRESSURE_CAP", YELLOW)
    assert (host.decide(one).batch, host.governor.pressure()) == (1, YELLOW)
    assert ([host.decide(one).batch for _ in range(2)], host.governor.pressure()) == ([1, 1], GREEN)

    assert [host.decide(one).batch for _ in range(9)] == [1, 1, 2, 2, 2, 4, 4, 4, 8]


def test_waiting_looks_count_for_recovery(host: Host) -> None:
    """A job whose minimum is above the cap waits until the cap has grown, and its waiting helps."""
    host.decide()
    host.decide(swapped_pages=1)
    host.decide(swapped_pages=1)

    batches = [host.decide().batch for _ in range(9)]

    assert batches == [0] * 8 + [2]


@pytest.mark.parametrize(
    ("available_bytes", "colour"), [(2 * GIB + 1, GREEN), (2 * GIB, YELLOW), (GIB + 1, YELLOW), (GIB, RED)]
)
def test_the_floors_count_from_equality_on(available_bytes: int, colour: Pressure) -> None:
    """The reserve is 2 GiB, the emergency 1 GiB."""
    machine = Machine()
    host = Host(a_governor(machine, policy=a_policy(memory_emergency_bytes=GIB)), machine)

    host.decide(available_bytes=available_bytes)

    assert host.governor.pressure() is colour


def test_unified_memory_halves_what_fits() -> None:
    """1 GiB of RAM and 1 GiB of GPU per item, 4 GiB to offer: two."""
    machine = Machine()
    host = Host(a_governor(machine, a_profile(gpu=a_uma_gpu()), a_policy(gpu_slots=1)), machine)
    estimate = an_estimate(gpu_memory_per_item_bytes=GIB, gpu_slots=1)

    assert host.decide(estimate, available_bytes=6 * GIB).batch == 2


def test_a_dedicated_card_limits_by_its_live_memory() -> None:
    """2.5 GiB free, 0.5 GiB in reserve: two items of 1 GiB."""
    machine = Machine()
    policy = a_policy(gpu_slots=1, gpu_memory_reserve_bytes=512 * MIB)
    governor = a_governor(machine, a_profile(gpu=a_dedicated_gpu(4 * GIB)), policy)
    snapshot = machine.look(gpu_memory_available_bytes=2560 * MIB)

    decision = governor.decide(snapshot, an_estimate(gpu_memory_per_item_bytes=GIB, gpu_slots=1), "kind")

    assert (decision.verdict, decision.batch) == (Verdict.REDUCE, 2)


def test_a_large_host_reserves_all_it_has_and_refuses_a_tighter_policy() -> None:
    """64 GiB, 37 available, no reserve: 37 items, then a wait, and no policy below the charge."""
    machine = Machine()
    policy = a_policy(memory_reserve_bytes=0, cpu_reserve_threads=0)
    profile = a_profile(logical_cpus=64, memory_total_bytes=64 * GIB)
    governor = a_governor(machine, profile, policy)
    snapshot = machine.look(available_bytes=37 * GIB)
    estimate = an_estimate(max_batch=128)

    first, reservation = governor.reserve(snapshot, estimate, "kind")
    second, _ = governor.reserve(snapshot, estimate, "kind")

    assert (first.verdict, first.batch) == (Verdict.REDUCE, 37)
    assert (second.verdict, second.reason) == (Verdict.WAIT, DecisionReason.INSUFFICIENT_MEMORY)
    assert not governor.set_policy(a_policy(memory_reserve_bytes=28 * GIB, cpu_reserve_threads=0))
    assert governor.policy == policy
    assert reservation is not None
    assert governor.release(reservation)
    assert governor.set_policy(a_policy(memory_reserve_bytes=28 * GIB, cpu_reserve_threads=0))


def test_65_gib_are_refused_by_a_host_of_64() -> None:
    """The fixed part alone is more than there is."""
    machine = Machine()
    profile = a_profile(logical_cpus=64, memory_total_bytes=64 * GIB)
    host = Host(a_governor(machine, profile, a_policy(memory_reserve_bytes=0)), machine)

    decision = host.decide(an_estimate(memory_fixed_bytes=65 * GIB))

    assert (decision.verdict, decision.reason) == (Verdict.REJECT, DecisionReason.IMPOSSIBLE_ON_NODE)


def test_pressure_does_not_touch_what_is_reserved(host: Host) -> None:
    """A running batch keeps its grant through red."""
    _, reservation = host.governor.reserve(host.machine.look(), an_estimate(), "kind")
    host.decide(swapped_pages=1)
    host.decide(swapped_pages=1)

    assert host.governor.pressure() is RED
    assert reservation is not None
    assert host.governor.reservation_is_valid(reservation)
    assert reservation.grant.batch == 8
