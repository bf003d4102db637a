"""Tests of what is made of a ramp's runs."""

from dataclasses import replace

import pytest

from worker.ramp import Row, is_noise, like_right, medians

ROW = Row(
    profile="right",
    load=100,
    margin="learned",
    detector=50,
    worst_high=300,
    vetoes=10,
    delivered=400,
    device_factor_percent=110,
)


@pytest.mark.parametrize(
    ("one", "other", "is_told"),
    [
        (0, 4, True),
        (0, 5, False),
        (50, 54, True),
        (50, 55, True),
        (50, 56, False),
        (100, 111, True),
        (100, 112, False),
    ],
)
def test_small_differences_are_noise(one: int, other: int, is_told: bool) -> None:  # noqa: FBT001
    """Below 5 permille, or below a tenth of the larger."""
    assert is_noise(one, other) is is_noise(other, one) is is_told


def test_repeats_are_told_by_their_medians() -> None:
    """Each figure by its own."""
    rows = [
        replace(ROW, detector=detector, vetoes=vetoes) for detector, vetoes in ((1, 30), (9, 10), (5, 20))
    ]
    other = replace(ROW, load=110)

    assert list(medians([*rows, other])) == [replace(ROW, detector=5, vetoes=20), other]


@pytest.mark.parametrize(
    ("detector", "worst_high", "is_told"),
    [(50, 300, True), (54, 330, True), (0, 0, True), (60, 300, False), (50, 400, False)],
)
def test_a_wrong_profile_is_compared_with_the_right_one(
    detector: int,
    worst_high: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    """As good, but for noise; better is as good."""
    row = replace(ROW, profile="x2", detector=detector, worst_high=worst_high)

    assert like_right(row, [ROW, row]) is is_told


def test_there_may_be_nothing_to_compare_with() -> None:
    """The right profile itself, and one whose load or margin was not run with it."""
    assert like_right(ROW, [ROW]) is None
    assert like_right(replace(ROW, profile="x2", load=110), [ROW]) is None
    assert like_right(replace(ROW, profile="x2", margin="fixed"), [ROW]) is None
