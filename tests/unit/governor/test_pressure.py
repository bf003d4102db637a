"""Tests of the pressure machine: each signal, each pair, the way back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.model import UINT64_MAX, Policy, Pressure
from governor.pressure import PressureState, observe
from tests.unit.governor.builders import GIB, Machine, a_policy, a_snapshot

POLICY = a_policy(memory_emergency_bytes=GIB, io_psi_limit_percent=80)
GREEN, YELLOW, RED = Pressure.GREEN, Pressure.YELLOW, Pressure.RED


def after(
    *looks: dict[str, Any], start: PressureState | None = None, policy: Policy = POLICY
) -> PressureState:
    """Observe one new snapshot per entry; without a start the swap baseline is seen first."""
    machine = Machine()
    state = observe(PressureState(), machine.look(), policy) if start is None else start
    machine.now_ns = state.observed_at_ns or 0
    machine.swapped_pages = state.swapped_in_pages or 0
    for look in looks:
        state = observe(state, machine.look(**look), policy)
    return state


HEALTHY: dict[str, Any] = {}
SWAPPING = {"swapped_pages": 1}
SOFT = {"available_bytes": 2 * GIB}
HARD = {"available_bytes": GIB}
BUSY = {"cpu_psi_percent": 20.0}


def test_a_new_machine_is_green_without_a_cap() -> None:
    """Nothing is limited before anything was seen."""
    assert (PressureState().colour, PressureState().growth_cap) == (GREEN, None)


@pytest.mark.parametrize(
    ("available_bytes", "colour"),
    [(2 * GIB + 1, GREEN), (2 * GIB, YELLOW), (GIB + 1, YELLOW), (GIB, RED), (GIB - 1, RED), (0, RED)],
)
def test_each_floor_counts_from_equality_on(available_bytes: int, colour: Pressure) -> None:
    """The reserve is the soft floor, the emergency the hard one."""
    assert after({"available_bytes": available_bytes}).colour is colour


def test_an_emergency_floor_of_0_is_off() -> None:
    """Even no memory at all is then yellow only."""
    policy = a_policy(memory_emergency_bytes=0)

    assert after({"available_bytes": 0}, policy=policy).colour is YELLOW


def test_a_soft_signal_never_leads_to_red() -> None:
    """However long it lasts."""
    assert after(*[SOFT] * 20).colour is YELLOW


@pytest.mark.parametrize("counter", ["swapped_in_pages", "swapped_out_pages"])
@pytest.mark.parametrize(("pages", "colour"), [(99, GREEN), (100, GREEN), (101, YELLOW)])
def test_only_growth_of_a_swap_counter_is_swapping(counter: str, pages: int, colour: Pressure) -> None:
    """Equal and smaller counters are no signal; either counter may grow."""
    before = {"swapped_in_pages": 100, "swapped_out_pages": 100}
    state = observe(PressureState(), a_snapshot(captured_at_ns=1, **before), POLICY)

    state = observe(state, a_snapshot(captured_at_ns=2, **(before | {counter: pages})), POLICY)

    assert state.colour is colour


def test_a_second_consecutive_swap_growth_is_red() -> None:
    """One is yellow, two are red with a cap of 1."""
    assert after(SWAPPING).colour is YELLOW
    assert (after(SWAPPING, SWAPPING).colour, after(SWAPPING, SWAPPING).growth_cap) == (RED, 1)


@pytest.mark.parametrize("between", [HEALTHY, BUSY, SOFT])
def test_swap_growth_with_anything_between_is_not_consecutive(between: dict[str, Any]) -> None:
    """An observation without growth starts the count anew."""
    assert after(SWAPPING, between, SWAPPING).colour is YELLOW


def test_growth_is_measured_from_the_last_known_counters() -> None:
    """An unknown reading between two known ones hides no swapping."""
    known = {"swapped_in_pages": 5, "swapped_out_pages": 5}
    state = observe(PressureState(), a_snapshot(captured_at_ns=1, **known), POLICY)
    state = observe(state, a_snapshot(captured_at_ns=2), POLICY)

    grown = {"swapped_in_pages": 6, "swapped_out_pages": 5}

    assert state.colour is GREEN
    assert observe(state, a_snapshot(captured_at_ns=3, **grown), POLICY).colour is YELLOW


def test_unknown_readings_create_no_pressure() -> None:
    """A machine without PSI and vmstat stays green."""
    states = [observe(PressureState(), a_snapshot(captured_at_ns=time), POLICY) for time in range(1, 10)]

    assert {state.colour for state in states} == {GREEN}


@pytest.mark.parametrize(
    ("reading", "limit_percent"), [("cpu_psi_percent", 20), ("memory_psi_percent", 1), ("io_psi_percent", 80)]
)
def test_psi_at_its_limit_keeps_the_colour_but_is_not_healthy(reading: str, limit_percent: int) -> None:
    """Two healthy observations, then the reading: only just below its limit is it the third."""
    red = PressureState(colour=RED, growth_cap=1, healthy_streak=2)

    below = after({reading: limit_percent - 0.01}, start=red)
    at = after({reading: float(limit_percent)}, start=red)

    assert below.colour is YELLOW
    assert (at.colour, at.healthy_streak) == (RED, 0)
    assert after({reading: 100.0}).colour is GREEN


def test_a_snapshot_that_is_not_newer_changes_nothing() -> None:
    """Deciding for many jobs on one snapshot is one observation."""
    state = observe(PressureState(), a_snapshot(captured_at_ns=5), POLICY)

    for captured_at_ns in (5, 4):
        again = observe(state, a_snapshot(captured_at_ns=captured_at_ns, memory_available_bytes=0), POLICY)
        assert again is state
    assert observe(state, a_snapshot(captured_at_ns=6, memory_available_bytes=0), POLICY).colour is RED


def test_the_way_back_from_red_follows_the_timeline() -> None:
    """Healthy observations 1 to 18 after red, as documented."""
    state = after(HARD)
    timeline: list[tuple[Pressure, int | None]] = []
    for _ in range(18):
        state = after(HEALTHY, start=state)
        timeline.append((state.colour, state.growth_cap))

    assert timeline[:2] == [(RED, 1)] * 2
    assert timeline[2:5] == [(YELLOW, 1)] * 3
    assert timeline[5:8] == [(GREEN, 1)] * 3
    assert timeline[8:11] == [(GREEN, 2)] * 3
    assert timeline[11:] == [(GREEN, 4)] * 3 + [(GREEN, 8)] * 3 + [(GREEN, 16)]


def test_an_unhealthy_observation_starts_the_count_anew() -> None:
    """Recovery needs three in a row, in each colour."""
    red = after(HARD)

    assert after(HEALTHY, HEALTHY, BUSY, HEALTHY, HEALTHY, start=red).colour is RED
    assert after(HEALTHY, HEALTHY, BUSY, HEALTHY, HEALTHY, HEALTHY, start=red).colour is YELLOW


@pytest.mark.parametrize("signal", [SOFT, SWAPPING, BUSY, HARD])
def test_every_signal_ends_a_healthy_streak(signal: dict[str, Any]) -> None:
    """Two healthy observations before it count for nothing after it."""
    recovering = after(HARD, *[HEALTHY] * 5)

    assert recovering.healthy_streak == 2
    assert after(signal, start=recovering).healthy_streak == 0


def test_yellow_halves_until_something_healthy_was_seen() -> None:
    """Then the cap of 1 takes over, and stays when another signal follows."""
    signal, recovering = after(SOFT), after(SOFT, HEALTHY)

    assert (signal.halves_batches, signal.growth_cap) == (True, None)
    assert (recovering.halves_batches, recovering.growth_cap) == (False, 1)
    assert after(SOFT, HEALTHY, SOFT).growth_cap == 1


def test_a_new_yellow_episode_keeps_the_cap_and_halves_again() -> None:
    """A signal during regrowth takes nothing back before the first healthy observation."""
    state = after(SOFT, *[HEALTHY] * 6, SOFT)

    assert (state.colour, state.growth_cap, state.halves_batches) == (YELLOW, 2, True)


def test_hard_resets_the_streaks() -> None:
    """A swap growth after it counts as the first."""
    state = after(SWAPPING, HARD | SWAPPING)

    assert (state.colour, state.healthy_streak, state.swapping_streak) == (RED, 0, 0)


def test_the_cap_goes_when_no_valid_batch_reaches_it() -> None:
    """The last cap is 2^63; the next doubling ends it."""
    state = PressureState(growth_cap=2**62, healthy_streak=2)

    assert after(HEALTHY, start=state).growth_cap == 2**63
    assert after(*[HEALTHY] * 4, start=state).growth_cap is None


def test_streaks_at_their_maximum_do_not_wrap() -> None:
    """G-D02: one more of each kind still leads where it must."""
    full = PressureState(healthy_streak=UINT64_MAX, swapping_streak=UINT64_MAX)
    baseline = PressureState(
        swapping_streak=UINT64_MAX, swapped_in_pages=0, swapped_out_pages=0, healthy_streak=UINT64_MAX
    )
    red = PressureState(colour=RED, growth_cap=1, healthy_streak=UINT64_MAX)

    assert after(HEALTHY, start=full).healthy_streak == UINT64_MAX
    swapping = after(SWAPPING, start=baseline)
    assert (swapping.colour, swapping.swapping_streak) == (RED, UINT64_MAX)
    assert after(HEALTHY, start=red).colour is YELLOW


@given(st.lists(st.sampled_from([HEALTHY, HEALTHY, HEALTHY, SWAPPING, SOFT, HARD, BUSY]), max_size=60))
def test_red_never_turns_green_directly(looks: list[dict[str, Any]]) -> None:
    """Over any sequence: no jump, and red always has a cap of 1."""
    machine, state = Machine(), PressureState()
    for look in looks:
        before, state = state, observe(state, machine.look(**look), POLICY)
        assert (before.colour, state.colour) != (RED, GREEN)
        assert state.colour is not RED or state.growth_cap == 1
        assert not state.halves_batches or state.colour is YELLOW
