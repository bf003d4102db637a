"""Makes the tables of ``tiepoint simulate``: what a wrong profile costs, and what learning gains.

Every figure is the median of the seeds 1, 2 and 3. Does not cover how they are shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
START_PERCENT = 110
_FIFO_CAPACITIES = (1, 8)
_PLAN_SIZE_LOAD, _PLAN_SIZE_SEED = 110, 1
_PLAN_SIZE_MINIMA = (100, 75, 60, 55, 50)

Pair = tuple[int, int]
"""Uncovered permille: the detector's, the worse one of the other two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow:
    """One profile at one load; FIFO knows no profile."""

    profile: str
    load: int
    fifo: Pair | None
    fixed_110: Pair
    fixed_100: Pair
    learned: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSizeRow:
    """How large plans are allowed to be, and what comes of it."""

    setting: str
    figures: Figures


def profiles(permille: int) -> ProfileSet:
    """Return the profiles that the planner is told."""
    return ProfileSet(
        cells={CellKey(kind=source.name): source.durations.scaled(permille) for source in SOURCES}
    )


def fixed_planner(permille: int, margin_percent: int) -> Planner:
    """Return a planner that learns no factor."""
    return Planner(profiles(permille), margin_percent=margin_percent)


def learning_planner(permille: int, *, min_factor_percent: int = 50) -> Planner:
    """Return a planner that learns one."""
    learner = Learner(
        settings=LearnerSettings(start_percent=START_PERCENT, min_factor_percent=min_factor_percent)
    )
    return Planner(profiles(permille), margin_percent=START_PERCENT, learner=learner)


def edge_table(cells: Sequence[tuple[str, int]] | None = None) -> list[EdgeRow]:
    """Return the table around full load; ``cells`` = (profile, load) picks rows."""
    picked = cells or [(profile, load) for profile, loads in EDGE.items() for load in loads]
    return [_edge_row(profile, load) for profile, load in picked]


def plan_size_table() -> list[PlanSizeRow]:
    """Return what larger and smaller plans cost, with a profile of twice the truth at 110 % load."""
    twice, right = PROFILES["x2"], PROFILES["right"]
    rows = [("fixed 110 %, x2", fixed_planner(twice, START_PERCENT))]
    rows += [
        (f"min_factor {minimum}, x2", learning_planner(twice, min_factor_percent=minimum))
        for minimum in _PLAN_SIZE_MINIMA
    ]
    rows.append(("fixed 110 %, right", fixed_planner(right, START_PERCENT)))
    return [PlanSizeRow(setting=setting, figures=_run(planner)) for setting, planner in rows]


def carried_over(permille: int, load: int, seeds: tuple[int, int]) -> Pair:
    """Return a second run's figures whose learner goes on where the first one's ended."""
    planner = learning_planner(permille)
    first, second = seeds
    PlannedSimulation(load, first, planner).run()
    again = Planner(profiles(permille), margin_percent=START_PERCENT, learner=planner.learner)
    return _pair(PlannedSimulation(load, second, again).run())


def _run(planner: Planner) -> Figures:
    return PlannedSimulation(_PLAN_SIZE_LOAD, _PLAN_SIZE_SEED, planner).run()


def _edge_row(profile: str, load: int) -> EdgeRow:
    permille = PROFILES[profile]
    return EdgeRow(
        profile=profile,
        load=load,
        fifo=_medians(lambda seed: _best_fifo(load, seed)) if profile == "right" else None,
        fixed_110=_planned(load, lambda: fixed_planner(permille, 110)),
        fixed_100=_planned(load, lambda: fixed_planner(permille, 100)),
        learned=_planned(load, lambda: learning_planner(permille)),
    )


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
