"""Learning that is off is as if there were none: the simulation decides the same, instant by instant."""

from typing import cast

import pytest

from governor.planning.planner import Plan, Planner
from governor.planning.profile import CellKey
from governor.simulation.scenario import Frame
from governor.simulation.simulator import Figures, Lane, PlannedSimulation
from governor.simulation.tables import fixed_planner, profiles
from worker.planning import NodePlanning
from worker.planning_settings import PlanningSettings

_LOAD, _MARGIN = 110, 110
_TWICE = 2000

Decision = tuple[str, int, int, int]
"""Stream, capture, instant, and how often something had been put off by then."""


class LoggedSimulation(PlannedSimulation):
    """Writes down what it starts, when, and what it has put off before."""

    def __init__(self, seed: int, planner: Planner) -> None:
        self.log: list[Decision] = []
        super().__init__(_LOAD, seed, planner)

    def dispatch(self, lane: Lane, frame: Frame, now_ns: int, plan: Plan | None = None) -> None:
        """Note it."""
        self.log.append((lane.source.name, frame.captured_ns, now_ns, self.vetoes))
        super().dispatch(lane, frame, now_ns, plan)


class NodesPlanner:
    """A worker's planning, asked as the simulation asks its planner."""

    def __init__(self, planning: NodePlanning) -> None:
        self._planning = planning
        self._overruns = 0

    def plan(self, key: CellKey) -> Plan | None:
        """Plan a batch of one that starts alone."""
        return self._planning.plan(key.kind, items=1, others=0)

    def complete(self, plan: Plan, duration_ns: int) -> bool:
        """Let the worker know; return whether it has counted an overrun."""
        self._planning.complete(plan, duration_ns)
        told = self._planning.describe()["kinds"].values()
        before, self._overruns = self._overruns, sum(kind["overruns"] for kind in told)
        return self._overruns > before


def run(seed: int, planner: object) -> tuple[Figures, list[Decision]]:
    """Return a run's counters and its decisions."""
    simulation = LoggedSimulation(seed, cast("Planner", planner))
    return simulation.run(), simulation.log


@pytest.mark.parametrize("settings", [{}, {"margin_learning": None}, {"prediction": "active"}])
def test_a_disabled_learner_changes_no_counter_and_no_decision(settings: dict[str, object]) -> None:
    """Profiles of twice the truth, where a learner would change most. Red where a node learns unasked."""
    absent = fixed_planner(_TWICE, _MARGIN)
    planning = NodePlanning(PlanningSettings.model_validate(settings), profiles(_TWICE))
    disabled = run(1, NodesPlanner(planning))

    assert disabled == run(1, absent)
    assert disabled[0].vetoes > 10_000


def test_a_learner_that_is_on_decides_otherwise() -> None:
    """Else the comparison would show nothing."""
    absent = fixed_planner(_TWICE, _MARGIN)
    settings = PlanningSettings.model_validate({"margin_learning": {}})

    assert run(1, NodesPlanner(NodePlanning(settings, profiles(_TWICE)))) != run(1, absent)
