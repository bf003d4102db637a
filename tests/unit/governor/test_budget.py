"""Tests of the budget arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.budget import (
    Need,
    charge_of,
    exceeds,
    falls_below,
    least_memory_bytes,
    live_budget,
    most,
    most_memory_bytes,
    remaining,
)
from governor.model import UINT64_MAX, Resources
from tests.unit.governor.builders import (
    GIB,
    MIB,
    a_dedicated_gpu,
    a_policy,
    a_profile,
    a_snapshot,
    a_uma_gpu,
    an_estimate,
)

small = st.integers(0, 200)


@given(fixed=small, per_item=small, available=st.integers(0, 5000), max_batch=st.integers(1, 50))
def test_the_largest_batch_fits_and_the_next_does_not(
    fixed: int, per_item: int, available: int, max_batch: int
) -> None:
    """For every need: the answer fits, and one more is too much or too many."""
    need = Need(fixed_bytes=fixed, per_item_bytes=per_item)

    batch = need.largest_batch(available, max_batch)

    assert batch == 0 or need.bytes_for(batch) <= available
    assert batch == max_batch or need.bytes_for(batch + 1) > available


def test_unified_memory_is_charged_once_to_the_ram() -> None:
    """On UMA both parts are added to the RAM, on a dedicated card they are apart."""
    estimate = an_estimate(
        memory_fixed_bytes=1, gpu_memory_fixed_bytes=2, gpu_memory_per_item_bytes=MIB, gpu_slots=1
    )

    unified, apart = charge_of(estimate, a_uma_gpu()), charge_of(estimate, a_dedicated_gpu())

    assert unified.memory == Need(fixed_bytes=3, per_item_bytes=GIB + MIB)
    assert unified.gpu_memory.bytes_for(8) == 0
    assert apart.memory == Need(fixed_bytes=1, per_item_bytes=GIB)
    assert apart.gpu_memory == Need(fixed_bytes=2, per_item_bytes=MIB)


@pytest.mark.parametrize(
    ("fixed", "per_item", "batch", "is_in_range"),
    [
        (UINT64_MAX, 0, 1, True),
        (UINT64_MAX + 1, 0, 1, False),
        (0, UINT64_MAX, 1, True),
        (1, UINT64_MAX, 1, False),
        (0, 2**63, 2, False),
        (1, (UINT64_MAX - 1) // 2, 2, True),
    ],
)
def test_sums_are_checked_against_64_bits(fixed: int, per_item: int, batch: int, is_in_range: bool) -> None:  # noqa: FBT001
    """Python would not overflow by itself."""
    assert Need(fixed_bytes=fixed, per_item_bytes=per_item).is_in_range(batch) is is_in_range


@pytest.mark.parametrize(
    ("available_bytes", "budget_bytes"),
    [(0, 0), (2 * GIB - 1, 0), (2 * GIB, 0), (2 * GIB + 1, 1), (16 * GIB, 14 * GIB), (20 * GIB, 14 * GIB)],
)
def test_the_memory_budget_saturates_at_0_and_at_the_total(available_bytes: int, budget_bytes: int) -> None:
    """A partition of a larger machine offers no more than its own total."""
    budget = live_budget(a_profile(), a_policy(), a_snapshot(memory_available_bytes=available_bytes))

    assert budget.memory_bytes == budget_bytes


@pytest.mark.parametrize(
    ("promised_bytes", "budget_bytes"),
    [(0, 14 * GIB), (4 * GIB, 14 * GIB), (5 * GIB, 13 * GIB), (99 * GIB, 0)],
)
def test_what_others_have_promised_is_taken_off_what_is_free(promised_bytes: int, budget_bytes: int) -> None:
    """Off the machine's 20 GiB, before the 16 of this node and the reserve of 2."""
    snapshot = a_snapshot(memory_available_bytes=20 * GIB, memory_promised_bytes=promised_bytes)
    profile, policy = a_profile(memory_total_bytes=16 * GIB), a_policy(memory_reserve_bytes=2 * GIB)

    assert live_budget(profile, policy, snapshot).memory_bytes == budget_bytes


def test_the_most_a_node_offers_is_its_total_less_the_reserve() -> None:
    """That is what "needs X, this node offers at most Y" says; never negative."""
    assert most_memory_bytes(a_profile(), a_policy()) == 14 * GIB
    assert most_memory_bytes(a_profile(memory_total_bytes=GIB), a_policy()) == 0
    assert least_memory_bytes(an_estimate(memory_fixed_bytes=5), a_profile()) == 2 * GIB + 5


def test_a_dedicated_card_has_a_budget_of_its_own() -> None:
    """The live free memory less the reserve; unknown stays unknown; never above the card."""
    profile = a_profile(gpu=a_dedicated_gpu(4 * GIB))
    policy = a_policy(gpu_memory_reserve_bytes=512 * MIB, gpu_slots=1)

    def budget_of(free_bytes: int | None) -> int | None:
        snapshot = a_snapshot(gpu_memory_available_bytes=free_bytes)
        return live_budget(profile, policy, snapshot).gpu_memory_bytes

    assert [budget_of(free) for free in (None, 0, 512 * MIB, 512 * MIB + 1)] == [None, 0, 0, 1]
    assert budget_of(9 * GIB) == most(profile, policy).gpu_memory_bytes == 4 * GIB - 512 * MIB


def test_a_card_of_unknown_size_has_no_known_ceiling() -> None:
    """Unknown is None, never 0."""
    profile = a_profile(gpu=a_dedicated_gpu(memory_total_bytes=None))

    assert most(profile, a_policy(gpu_slots=1)).gpu_memory_bytes is None
    assert most(a_profile(gpu=a_uma_gpu()), a_policy(gpu_slots=1)).gpu_memory_bytes == 0


def test_threads_and_slots_are_budgeted_too() -> None:
    """The CPU reserve is taken off; without a card there is no GPU slot."""
    budget = most(a_profile(), a_policy(gpu_slots=3))

    assert (budget.cpu_threads, budget.gpu_slots, budget.io_slots) == (15, 0, 8)


def test_what_remains_saturates_at_0_and_unknown_stays_unknown() -> None:
    """A live budget may be below what is reserved already."""
    budget = Resources(memory_bytes=5, gpu_memory_bytes=None, cpu_threads=4, io_slots=1)
    reserved = Resources(memory_bytes=7, cpu_threads=1, io_slots=1)

    left = remaining(budget, reserved)

    assert left == Resources(memory_bytes=0, gpu_memory_bytes=None, cpu_threads=3)


def test_more_than_the_budget_is_noticed() -> None:
    """Equality is in order, an unknown budget is not exceeded."""
    budget = Resources(memory_bytes=5, gpu_memory_bytes=None, cpu_threads=1)

    assert not exceeds(Resources(memory_bytes=5, gpu_memory_bytes=9, cpu_threads=1), budget)
    assert exceeds(Resources(memory_bytes=6), budget)
    assert exceeds(Resources(cpu_threads=2), budget)


@pytest.mark.parametrize(
    ("before", "after", "falls"), [(9, 5, False), (9, 4, True), (4, 4, False), (3, 4, False), (4, 3, True)]
)
def test_a_budget_falls_below_only_when_it_is_lowered(before: int, after: int, falls: bool) -> None:  # noqa: FBT001
    """Five are reserved; a budget that is short already may stay or grow."""
    reserved = Resources(memory_bytes=5)

    assert falls_below(reserved, Resources(memory_bytes=before), Resources(memory_bytes=after)) is falls
