"""Tests of profiles that are wrong on purpose."""

import pytest

from governor.planning.profile import CellKey, Durations, LinearCost, ProfileSet
from worker.scaled_profiles import permille_of, scaled
from worker.settings import WrongSettingError

KEY = CellKey(kind="noop", variant="cpu", batch_class=1, occupancy=0)
PROFILES = ProfileSet(
    cells={KEY: Durations(p50_ns=10, p95_ns=11, p99_ns=15)},
    linear={"noop": LinearCost(setup_ns=3, per_item_ns=1)},
    conditions={"tiepoint": "1"},
)


def test_every_duration_is_scaled_and_floored() -> None:
    """What a duration depends on stays as it is, and none becomes nothing."""
    found = scaled(PROFILES, 700)

    assert found.cells == {KEY: Durations(p50_ns=7, p95_ns=7, p99_ns=10)}
    assert found.linear == {"noop": LinearCost(setup_ns=2, per_item_ns=1)}
    assert found.conditions == PROFILES.conditions
    assert scaled(PROFILES, 1000) == PROFILES


@pytest.mark.parametrize("told", ["", "2", "x", "x0.01", "x11", "x2,5", "Right", "x1.2345"])
def test_what_is_no_factor_is_refused(told: str) -> None:
    """The sentence says how it is written."""
    with pytest.raises(WrongSettingError, match=r"^--profile: .* is no profile; say `right`, or"):
        permille_of(told, "--profile")
