"""The simulation's tables: every figure as the specification says, to the permille.

A part of the tables; ``make bench`` makes them whole.
"""

import pytest

from governor.simulation.scenario import DURATION_NS, SOURCES, frames
from governor.simulation.simulator import FifoSimulation, PlannedSimulation
from governor.simulation.tables import (
    EdgeRow,
    carry_over_row,
    edge_row,
    learning_planner,
    plan_size_row,
)


def test_at_full_load_with_a_right_profile_all_settings_agree_without_a_veto() -> None:
    """Median of three seeds."""
    row = edge_row("right", 100)

    assert row == EdgeRow(
        profile="right", load=100, fifo=(52, 333), fixed_110=(61, 361), fixed_100=(61, 361), learned=(61, 361)
    )
    assert PlannedSimulation(100, 1, learning_planner(1000)).run().vetoes == 0


def test_a_profile_of_twice_the_truth_starves_the_others_until_it_is_learned() -> None:
    """At 110 % load; a fixed margin never finds out."""
    row = edge_row("x2", 110)

    assert row == EdgeRow(
        profile="x2", load=110, fifo=(222, 522), fixed_110=(0, 1000), fixed_100=(0, 1000), learned=(77, 770)
    )


@pytest.mark.parametrize(
    ("seeds", "pair"), [((1, 11), (310, 386)), ((2, 12), (307, 356)), ((3, 13), (304, 352))]
)
def test_a_second_run_behaves_as_with_the_right_profile(
    seeds: tuple[int, int], pair: tuple[int, int]
) -> None:
    """What persistence buys: within 25 permille of the right profile's."""
    row = carry_over_row(*seeds)

    assert row.carried == pair
    assert abs(row.carried[0] - row.right[0]) <= 25


@pytest.mark.parametrize(
    ("minimum", "vetoes", "dispatched", "uncovered"),
    [(75, 8_222, 1_426, (0, 1000)), (50, 6_691, 1_537, (77, 772))],
)
def test_the_smaller_plans_may_become_the_fewer_are_vetoed(
    minimum: int, vetoes: int, dispatched: int, uncovered: tuple[int, int]
) -> None:
    """Two rows of the trade-off, to the last veto."""
    figures = plan_size_row("x2", minimum).figures

    assert (figures.vetoes, figures.dispatched) == (vetoes, dispatched)
    assert (figures.detector_permille, figures.worst_high_permille) == uncovered


def test_a_fixed_margin_is_exact_to_the_last_veto() -> None:
    """With the right profile."""
    figures = plan_size_row("right", None).figures

    assert (figures.vetoes, figures.dispatched) == (10, 2_046)
    assert (figures.detector_permille, figures.worst_high_permille) == (303, 357)


def test_fifo_drops_nothing_and_vetoes_nothing() -> None:
    """A longer queue serves the detector better, and the others worse."""
    short, long = (FifoSimulation(105, 1, capacity).run() for capacity in (1, 8))

    assert (short.vetoes, long.vetoes) == (0, 0)
    assert long.detector_permille < short.detector_permille
    assert long.worst_high_permille > short.worst_high_permille


def test_frames_are_numbered_over_all_streams_and_jitter_does_not_add_up() -> None:
    """The last capture of a stream is as near to its nominal time as the first."""
    made = frames(100, 1)
    last = [frame for frame in made if frame.source is SOURCES[0]][-1]

    assert [frame.number for frame in made] == list(range(1, len(made) + 1))
    assert abs(last.captured_ns - (DURATION_NS // 23_000_000) * 23_000_000) <= 500_000
