"""Makes the tables of ``tiepoint simulate``: what a wrong profile costs, and what learning gains.

Row by row, for each takes seconds. Does not cover how they are shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median_low

from governor.planning.learner import Learner, LearnerSettings
from governor.planning.planner import Planner
from governor.planning.profile import CellKey, ProfileSet
from governor.simulation.scenario import SOURCES
from governor.simulation.simulator import FifoSimulation, Figures, PlannedSimulation

SEEDS = (1, 2, 3)
PROFILES = {"right": 1000, "x1.1": 1100, "x2": 2000, "x0.7": 700}
"""What the planner is told of each duration, in permille of the truth."""
EDGE = {
    "right": (90, 95, 100, 105, 110, 125),
    "x1.1": (100, 105, 110, 125),
    "x2": (95, 100, 110, 125),
    "x0.7": (100, 105, 110, 125),
}
"""Loads in percent of what one slot can do, by profile."""
EDGE_CELLS = tuple((profile, load) for profile, loads in EDGE.items() for load in loads)
"""(profile, load) of each row of the table around full load."""
PLAN_SIZE_CELLS = (("x2", None), *(("x2", minimum) for minimum in (100, 75, 60, 55, 50)), ("right", None))
"""(profile, smallest factor in percent; None = nothing is learned, the margin is fixed) of each row of the
table of plan sizes."""
CARRY_OVER_CELLS = ((1, 11), (2, 12), (3, 13))
"""Seeds of the first and the second run of each row of the table of what a restart keeps."""
START_PERCENT = 110
_FIFO_CAPACITIES = (1, 8)
OVERLOAD_PERCENT = 110
"""Of the tables of plan sizes and of restarts."""
_PLAN_SIZE_SEED = 1

Pair = tuple[int, int]
"""Uncovered permille: the detector's, the worse one of the other two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow:
    """One profile at one load; each figure is the median of three seeds."""

    profile: str
    load: int
    fifo: Pair
    """It knows no profile: the same for each."""
    fixed_110: Pair
    fixed_100: Pair
    learned: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSizeRow:
    """How large plans are allowed to be, and what comes of it; one seed."""

    profile: str
    min_factor_percent: int | None
    """None: nothing is learned."""
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOverRow:
    """A second run whose learner goes on where the first one's ended, and what the right profile gives."""

    seeds: tuple[int, int]
    carried: Pair
    right: Pair


def profiles(permille: int) -> ProfileSet:
    """Return the profiles that the planner is told."""
    return ProfileSet(
        cells={CellKey(kind=source.name): source.durations.scaled(permille) for source in SOURCES}
    )


def fixed_planner(permille: int, margin_percent: int) -> Planner:
    """Return a planner that learns no factor."""
    return Planner(profiles(permille), margin_percent=margin_percent)


def learning_planner(
    permille: int, *, margin_percent: int = START_PERCENT, min_factor_percent: int = 50
) -> Planner:
    """Return a planner that learns one, beginning with the margin."""
    learner = Learner(
        settings=LearnerSettings(start_percent=margin_percent, min_factor_percent=min_factor_percent)
    )
    return Planner(profiles(permille), margin_percent=margin_percent, learner=learner)


def edge_row(profile: str, load: int) -> EdgeRow:
    """Return one row of the table around full load."""
    permille = PROFILES[profile]
    return EdgeRow(
        profile=profile,
        load=load,
        fifo=_fifo(load),
        fixed_110=_planned(load, lambda: fixed_planner(permille, 110)),
        fixed_100=_planned(load, lambda: fixed_planner(permille, 100)),
        learned=_planned(load, lambda: learning_planner(permille)),
    )


def plan_size_row(profile: str, min_factor_percent: int | None) -> PlanSizeRow:
    """Return what plans of one size cost at 110 % load."""
    permille = PROFILES[profile]
    if min_factor_percent is None:
        planner = fixed_planner(permille, START_PERCENT)
    else:
        planner = learning_planner(permille, min_factor_percent=min_factor_percent)
    figures = PlannedSimulation(OVERLOAD_PERCENT, _PLAN_SIZE_SEED, planner).run()
    return PlanSizeRow(profile=profile, min_factor_percent=min_factor_percent, figures=figures)


def carry_over_row(first_seed: int, second_seed: int) -> CarryOverRow:
    """Return what a restart keeps, with a profile of twice the truth at 110 % load."""
    permille = PROFILES["x2"]
    planner = learning_planner(permille)
    PlannedSimulation(OVERLOAD_PERCENT, first_seed, planner).run()
    again = Planner(profiles(permille), margin_percent=START_PERCENT, learner=planner.learner)
    right = learning_planner(PROFILES["right"])
    return CarryOverRow(
        seeds=(first_seed, second_seed),
        carried=_pair(PlannedSimulation(OVERLOAD_PERCENT, second_seed, again).run()),
        right=_pair(PlannedSimulation(OVERLOAD_PERCENT, second_seed, right).run()),
    )


@cache
def _fifo(load: int) -> Pair:
    return _medians(lambda seed: _best_fifo(load, seed))


def _planned(load: int, make: Callable[[], Planner]) -> Pair:
    return _medians(lambda seed: _pair(PlannedSimulation(load, seed, make()).run()))


def _best_fifo(load: int, seed: int) -> Pair:
    """Return the better of two queue lengths, for each figure by itself."""
    pairs = [_pair(FifoSimulation(load, seed, capacity).run()) for capacity in _FIFO_CAPACITIES]
    return (min(detector for detector, _ in pairs), min(worst for _, worst in pairs))


def _medians(run: Callable[[int], Pair]) -> Pair:
    pairs = [run(seed) for seed in SEEDS]
    return (median_low(detector for detector, _ in pairs), median_low(worst for _, worst in pairs))


def _pair(figures: Figures) -> Pair:
    return (figures.detector_permille, figures.worst_high_permille)
