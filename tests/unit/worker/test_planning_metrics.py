"""What nodes plan and learn is told to Prometheus, summed up as each gauge says."""

from typing import Any

from worker.live_nodes import LiveNode
from worker.planning_metrics import PlanningCollector, gauges

TOLD = {
    "device_factor_percent": 120,
    "kinds": {
        "match": {
            "factor_percent": 140,
            "margin_percent": None,
            "observations": 9,
            "overruns": 2,
            "ready_cells": 1,
            "cells": 3,
        }
    },
    "vetoes": 4,
    "drops": {"stale": 5, "superseded": 6},
    "verdict": "restored",
    "persist_failures": 7,
}


def samples(*planning: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each gauge by its labels, of nodes that tell this."""
    nodes = [LiveNode(name=f"pc{number}", planning=told) for number, told in enumerate(planning, 1)]
    return {
        gauge.name: {tuple(sample.labels.values()): sample.value for sample in gauge.samples}
        for gauge in gauges(nodes)
    }


def test_each_value_has_its_gauge() -> None:
    """With its node, and its kind or reason."""
    found = samples(TOLD)

    assert found["tiepoint_margin_percent"] == {("pc1", "match"): 140}
    assert found["tiepoint_planning_observations"] == {("pc1", "match"): 9}
    assert found["tiepoint_planning_overruns"] == {("pc1", "match"): 2}
    assert found["tiepoint_planning_cells_ready"] == {("pc1", "match"): 1}
    assert found["tiepoint_vetoes"] == {("pc1",): 4}
    assert found["tiepoint_drops"] == {("pc1", "stale"): 5, ("pc1", "superseded"): 6}
    assert found["tiepoint_factor_persist_failures"] == {("pc1",): 7}
    assert found["tiepoint_factor_verdicts"] == {("restored",): 1}


def test_the_largest_factor_of_all_nodes_is_told() -> None:
    """That of the slowest machine; 0 where none learns."""
    fixed = {"device_factor_percent": 0, "kinds": {}}
    name = "tiepoint_learned_device_factor_percent"

    assert samples(TOLD, {**TOLD, "device_factor_percent": 90})[name] == {(): 120}
    assert samples(fixed)[name] == samples()[name] == {(): 0}


def test_a_fixed_margin_is_told_as_it_is() -> None:
    """It moves, too."""
    match = {**TOLD["kinds"]["match"], "factor_percent": None, "margin_percent": 130}  # type: ignore[index]

    assert samples({**TOLD, "kinds": {"match": match}})["tiepoint_margin_percent"] == {("pc1", "match"): 130}


def test_nodes_that_plan_nothing_tell_nothing() -> None:
    """Absent is off."""
    assert samples({})["tiepoint_vetoes"] == {}


def test_without_a_queue_there_are_no_gauges() -> None:
    """Flower's page comes all the same."""
    collector = PlanningCollector("unix:///nowhere/redis.sock")

    assert (list(collector.collect()), collector.describe()) == ([], [])
