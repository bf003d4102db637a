"""The learned factor: golden values of every step, its limits, its equilibrium."""

import math
import random

import pytest

from governor.planning.learner import MAX_RESIDUAL, ONE, Learner, LearnerSettings, step_down, step_up

TARGET = 10
KINDS = ("a", "b", "c")


def levels(learner: Learner) -> tuple[int, list[int]]:
    """Return the device factor and the residuals of a, b and c, in millionths."""
    return learner.device.value, [learner.residual(kind) for kind in KINDS]


@pytest.mark.parametrize(
    ("factor", "up", "down"),
    [
        (1_000_000, 1_050_757, 999_500),
        (1_100_000, 1_155_832, 1_099_450),
        (500_000, 525_379, 499_750),
        (250_000, 262_690, 249_875),
        (3, 4, 2),
    ],
)
def test_one_level_steps_by_the_golden_values(factor: int, up: int, down: int) -> None:
    """Rounded towards caution: up is rounded up, down is rounded down."""
    assert step_up(factor, TARGET) == up
    assert step_down(factor, TARGET) == down


@pytest.mark.parametrize("factor", [250_000, 333_333, 1_000_000, 1_234_567, 9_999_999])
def test_a_step_is_undone_by_its_reciprocal_within_one(factor: int) -> None:
    """With the same target on both sides the fractions are each other's inverse."""
    half = 500

    assert step_down(step_up(factor, half), half) in {factor, factor + 1}
    assert abs(step_up(step_down(factor, half), half) - factor) <= 1


def test_overruns_in_a_row_lift_the_factor_to_its_limit_and_leave_no_debt() -> None:
    """15 from 1.10 to 4.5, 23 to 10; what comes on top changes nothing but the counts."""
    learner = Learner()
    factors = []
    for _ in range(123):
        learner.observe("a", overran=True)
        factors.append((learner.factor("a"), *levels(learner)))

    assert factors[13][0] < 4_500_000 <= factors[14][0]
    assert factors[14] == (4_857_981, 2_311_661, [2_101_511, ONE, ONE])
    assert factors[21][0] < 10_000_000
    assert factors[22] == (10_000_000, 3_435_110, [3_122_827, ONE, ONE])
    assert factors[122] == factors[22]
    assert learner.device.count == 123


def test_kept_plans_lower_the_factor_to_its_limit() -> None:
    """835 with one kind, counted from a node that has seen nothing."""
    learner = Learner()
    kept = 0
    while learner.factor("a") > 500_000:
        learner.observe("a", overran=False)
        kept += 1

    assert kept == 835
    assert levels(learner) == (741_466, [674_030, ONE, ONE])


def test_three_kinds_share_what_the_device_learns() -> None:
    """Round robin, the first of them reaches the limit after 1252 in all."""
    learner = Learner()
    kept = 0
    while min(learner.factor(kind) for kind in KINDS) > 500_000:
        learner.observe(KINDS[kept % 3], overran=False)
        kept += 1

    assert kept == 1252
    assert levels(learner) == (601_736, [830_522, 830_938, 830_938])


def test_a_factor_at_its_lower_limit_rises_at_once() -> None:
    """10,000 kept plans at the limit leave no debt."""
    learner = Learner(settings=LearnerSettings(min_factor_percent=20))
    for _ in range(1750):
        learner.observe("a", overran=False)
    at_limit = levels(learner)
    for _ in range(10_000):
        learner.observe("a", overran=False)

    assert at_limit == (468_883, [426_206, ONE, ONE])
    assert learner.factor("a") == 200_000
    assert levels(learner) == at_limit
    learner.observe("a", overran=True)
    assert learner.factor("a") == 220_642


def test_the_short_trace_is_exact() -> None:
    """Two levels, three kinds, both directions: the counts decide who may step down."""
    learner = Learner(settings=LearnerSettings(min_observations=2))
    seen = []
    for kind, overran in (("a", 0), ("a", 0), ("b", 0), ("b", 1), ("a", 0), ("c", 1)):
        learner.observe(kind, overran=bool(overran))
        seen.append((*levels(learner), [learner.factor(each) for each in KINDS]))

    assert seen == [
        (1_100_000, [ONE, ONE, ONE], [1_100_000, 1_100_000, 1_100_000]),
        (1_099_450, [999_500, ONE, ONE], [1_098_900, 1_099_450, 1_099_450]),
        (1_098_900, [999_500, ONE, ONE], [1_098_350, 1_098_900, 1_098_900]),
        (1_154_677, [999_500, 1_050_757, ONE], [1_154_099, 1_213_284, 1_154_677]),
        (1_154_099, [999_000, 1_050_757, ONE], [1_152_944, 1_212_677, 1_154_099]),
        (1_212_677, [999_000, 1_050_757, 1_050_757], [1_211_464, 1_274_228, 1_274_228]),
    ]


def test_the_long_trace_is_exact() -> None:
    """2000 observations of three kinds, overruns drawn by a generator that is part of the specification."""
    learner = Learner()
    state, seen = 1, {}
    for number in range(1, 2001):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        learner.observe(KINDS[number % 3], overran=(state >> 33) % 1000 < 30)
        seen[number] = levels(learner)

    assert seen[47] == (1_155_832, [1_050_757, ONE, ONE])
    assert seen[100] == (1_243_985, [1_050_757, 1_050_757, 1_050_757])
    assert seen[200] == (1_519_435, [1_150_302, 1_040_292, 1_208_687])
    assert seen[500] == (2_156_235, [1_336_467, 1_335_786, 1_149_691])
    assert seen[1000] == (4_565_323, [1_659_539, 1_658_687, 1_578_563])
    assert seen[2000] == (5_903_560, [1_807_598, 1_718_541, 1_808_477])


def test_the_48th_kept_plan_is_the_first_to_step_down() -> None:
    """47 have changed nothing."""
    learner = Learner()
    for _ in range(47):
        learner.observe("a", overran=False)
    before = levels(learner)
    learner.observe("a", overran=False)

    assert before == (1_100_000, [ONE, ONE, ONE])
    assert levels(learner) == (1_099_450, [999_500, ONE, ONE])


def test_an_unmeasured_profile_starts_at_one_and_a_half() -> None:
    """110 % and 40 points more; the device's factor and what others have learned stay."""
    learner = Learner()
    learner.observe("b", overran=True)
    learner.observe("a", overran=True)
    device = learner.device.value
    learner.distrust("a")

    assert Learner().settings.unverified_residual * 1_100_000 // ONE == 1_500_000
    assert learner.residuals["a"].count == 0
    assert learner.device.value == device
    assert learner.residual("b") == 1_050_757


def test_a_residual_stays_within_its_limits() -> None:
    """A start of 1 % would ask for 41 times as much."""
    assert LearnerSettings(start_percent=1).unverified_residual == MAX_RESIDUAL == 4_000_000


def test_a_kind_that_never_ran_has_the_factor_of_the_device() -> None:
    """What the machine is like is known before what the kind is like."""
    learner = Learner()
    learner.observe("a", overran=True)

    assert learner.factor("never ran") == learner.device.value == 1_155_832
    assert learner.factor_percent("never ran") == 116


@pytest.mark.parametrize(("given", "used"), [(0, 1), (1, 1), (50, 50), (51, 50)])
def test_a_miss_budget_is_clamped(given: int, used: int) -> None:
    """To 1..50 permille."""
    assert Learner(targets_permille={"a": given}).target_permille("a") == used


@pytest.mark.parametrize("seed", [1, 2])
def test_in_the_long_run_ten_of_a_thousand_overrun(seed: int) -> None:
    """Log-normal durations, a profile of half the truth: the factor finds the true p99."""
    rng = random.Random(seed)
    learner = Learner()
    sigma, true_p99 = 0.1, math.exp(0.1 * 2.326347874040841)
    profile_p99 = true_p99 / 2
    overruns, plans = 0, []
    for number in range(24_000):
        plan = profile_p99 * learner.factor("a") / ONE
        overran = rng.lognormvariate(0, sigma) > plan
        learner.observe("a", overran=overran)
        if number >= 12_000:
            overruns += overran
            plans.append(plan / true_p99)

    assert 5 <= overruns / 12 <= 15
    assert 1.0 <= sum(plans) / len(plans) <= 1.06
