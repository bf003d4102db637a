"""Observed durations: when a cell is believed, and which of its durations a quantile is."""

import pytest

from governor.planning.cell import Cell, batch_class


def cell_of(*durations_us: int) -> Cell:
    """Return a cell with these durations."""
    cell = Cell()
    for duration_us in durations_us:
        cell.add(duration_us * 1000)
    return cell


def test_a_cell_is_ready_with_sixteen() -> None:
    """Fifteen say nothing."""
    assert cell_of(*range(15)).quantile_ns(50) is None
    assert cell_of(*range(16)).quantile_ns(50) == 8_000


def test_a_quantile_is_one_of_the_durations() -> None:
    """The p95 of 64 is the one of index 60, the p100 the last."""
    cell = cell_of(*reversed(range(64)))

    assert cell.quantile_ns(95) == 60_000
    assert cell.quantile_ns(100) == 63_000


def test_the_65th_duration_pushes_out_the_first() -> None:
    """The ring is bounded, and a quantile follows what is added."""
    cell = cell_of(*[1_000_000] * 64)
    before_ns = cell.quantile_ns(0)
    for _ in range(64):
        cell.add(1_000)

    assert before_ns == 1_000_000_000
    assert cell.quantile_ns(100) == 1_000
    assert len(cell) == 64


def test_durations_are_per_item_in_whole_microseconds() -> None:
    """Floored, and saturating at 32 bits."""
    cell = Cell()
    for _ in range(15):
        cell.add(7_999, items=4)
    cell.add(2**32 * 1000 + 1)

    assert cell.quantile_ns(0) == 1_000
    assert cell.quantile_ns(100) == (2**32 - 1) * 1000


def test_a_cleared_cell_knows_nothing() -> None:
    """Also no quantile of before."""
    cell = cell_of(*range(16))
    cell.clear()

    assert (len(cell), cell.quantile_ns(50)) == (0, None)


@pytest.mark.parametrize(("items", "size"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (64, 64), (65, 64)])
def test_a_batch_class_is_the_next_power_of_two(items: int, size: int) -> None:
    """64 at most."""
    assert batch_class(items) == size
