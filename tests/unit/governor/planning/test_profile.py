"""Profiles: which measurement a batch is planned with, and what makes two sets the same."""

from dataclasses import replace

import pytest

from governor.planning.profile import CellKey, Durations, LinearCost, Profiled, ProfileSet

KEY = CellKey(kind="a", batch_class=4, occupancy=2)


def durations(p50_ns: int) -> Durations:
    """Return durations that can be told apart by their median."""
    return Durations(p50_ns=p50_ns, p95_ns=2 * p50_ns, p99_ns=3 * p50_ns)


def found(cells: dict[CellKey, Durations], key: CellKey = KEY) -> int | None:
    """Return the median of what a key is planned with."""
    profiled = ProfileSet(cells=cells).find(key, items=3)
    return None if profiled is None else profiled.durations.p50_ns


def test_what_was_measured_is_used_as_it_is() -> None:
    """Its neighbours do not matter."""
    cells = {
        KEY: durations(1),
        replace(KEY, batch_class=8): durations(2),
        replace(KEY, occupancy=3): durations(3),
    }

    assert found(cells) == 1


def test_a_missing_batch_class_is_planned_as_the_next_larger_one() -> None:
    """Never as a smaller one."""
    larger = {replace(KEY, batch_class=size): durations(size) for size in (2, 16, 32)}

    assert found(larger) == 16
    assert found({replace(KEY, batch_class=size): durations(size) for size in (8, 64)}) == 8
    assert found({replace(KEY, batch_class=2): durations(2)}) is None


def test_above_the_highest_measured_occupancy_the_highest_is_used() -> None:
    """Between two of them the larger."""
    measured = {replace(KEY, occupancy=occupancy): durations(occupancy + 1) for occupancy in (0, 4)}

    assert found(measured) == 5
    assert found(measured, replace(KEY, occupancy=7)) == 5
    assert found(measured, replace(KEY, occupancy=0)) == 1


def test_a_kind_without_measurements_is_computed_and_unverified() -> None:
    """Setup and so much per item; a batch of three: (10 + 3 * 4) / 3, rounded up."""
    profiles = ProfileSet(cells={}, linear={"a": LinearCost(setup_ns=10, per_item_ns=4)})

    assert profiles.find(KEY, items=3) == Profiled(
        durations=Durations(p50_ns=8, p95_ns=8, p99_ns=8), is_verified=False
    )
    assert profiles.find(CellKey(kind="b"), items=3) is None


def test_a_key_follows_from_the_batch_and_what_runs_beside_it() -> None:
    """More than seven others are seven."""
    assert CellKey.of("a", items=3, others=9) == CellKey(kind="a", batch_class=4, occupancy=7)


@pytest.mark.parametrize(
    ("p50", "p95", "p99", "is_valid"), [(1, 1, 1, True), (0, 1, 1, False), (2, 1, 3, False), (1, 3, 2, False)]
)
def test_quantiles_must_be_in_order(p50: int, p95: int, p99: int, is_valid: bool) -> None:  # noqa: FBT001
    """And above nothing."""
    assert Durations(p50_ns=p50, p95_ns=p95, p99_ns=p99).is_valid() is is_valid


def test_an_identity_changes_with_numbers_and_conditions_of_its_kind_only() -> None:
    """So a new measurement of one kind leaves what was learned of the others."""
    profiles = ProfileSet(
        cells={KEY: durations(1), CellKey(kind="b"): durations(1)}, conditions={"opencv": "5"}
    )
    remeasured = replace(profiles, cells={**profiles.cells, KEY: durations(2)})

    assert remeasured.identity("a") != profiles.identity("a")
    assert remeasured.identity("b") == profiles.identity("b")
    assert replace(profiles, conditions={"opencv": "6"}).identity("b") != profiles.identity("b")
