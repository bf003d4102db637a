"""A node's plans learn from what they are told, as its settings say."""

from typing import Any

import pytest

from governor.planning.profile import CellKey, Durations, LinearCost, ProfileSet
from worker.planning import NodePlanning
from worker.planning_settings import MarginLearning, PlanningSettings

PROFILES = ProfileSet(
    cells={CellKey(kind="match", batch_class=8): Durations(p50_ns=1_000, p95_ns=1_500, p99_ns=2_000)},
    linear={"track": LinearCost(setup_ns=0, per_item_ns=1_000)},
)
COUNTS = {"margin_percent": None, "ready_cells": 0, "cells": 1, "observations": 1}
LEARNING = PlanningSettings(margin_learning=MarginLearning())


def test_a_node_that_plans_nothing_has_no_planning() -> None:
    """No profile is even read."""
    assert NodePlanning.of(None) is None


@pytest.mark.parametrize("settings", [PlanningSettings(), LEARNING])
def test_a_plan_begins_with_the_margin(settings: PlanningSettings) -> None:
    """110 % of the profile's p99, for each of five items; the next larger class that was measured."""
    plan = NodePlanning(settings, PROFILES).plan("match", items=5, others=0)

    assert plan is not None
    assert (plan.conservative_ns, plan.optimistic_ns) == (5 * 2_200, 5 * 1_000)
    assert plan.key.batch_class == 8


def test_a_kind_without_a_profile_has_no_plan() -> None:
    """A number would be invented."""
    assert NodePlanning(LEARNING, PROFILES).plan("model", items=1, others=0) is None


@pytest.mark.parametrize("settings", [PlanningSettings(), LEARNING])
def test_a_kind_that_nobody_has_measured_is_planned_with_150_percent(settings: PlanningSettings) -> None:
    """40 points more, learned or not."""
    plan = NodePlanning(settings, PROFILES).plan("track", items=1, others=0)

    assert plan is not None
    assert plan.conservative_ns == 1_500


def told_of(settings: PlanningSettings, **durations_ns: int) -> dict[str, Any]:
    """Let one batch of eight take so long, and return what the node says then."""
    planning = NodePlanning(settings, PROFILES)
    plan = planning.plan("match", items=8, others=0)
    assert plan is not None
    planning.complete(plan, durations_ns["took"])
    return planning.describe()


def test_an_overrun_lifts_the_factor_and_is_counted() -> None:
    """Longer than planned by a nanosecond; both levels step."""
    told = told_of(LEARNING, took=8 * 2_200 + 1)

    assert told["kinds"] == {"match": {"factor_percent": 122, **COUNTS, "overruns": 1}}
    assert told["device_factor_percent"] == 116


def test_a_plan_that_is_met_to_the_nanosecond_is_kept() -> None:
    """Overrun is strictly more; before 48 batches nothing falls."""
    told = told_of(LEARNING, took=8 * 2_200)

    assert told["kinds"]["match"] == {"factor_percent": 110, **COUNTS, "overruns": 0}


def test_a_fixed_margin_learns_no_factor() -> None:
    """0 says so."""
    told = told_of(PlanningSettings(), took=10**9)

    assert (told["learning"], told["device_factor_percent"]) == (False, 0)
    assert told["kinds"]["match"] == {"factor_percent": None, **COUNTS, "margin_percent": 120, "overruns": 1}


def test_a_shadow_counts_what_the_other_way_would_have_overrun() -> None:
    """And changes no plan."""
    shadow = PlanningSettings(margin_learning=MarginLearning(), prediction="shadow")
    told = told_of(shadow, took=8 * 2_200 + 1)

    assert told["kinds"]["match"].pop("shadow_overruns") == 1
    assert told == told_of(LEARNING, took=8 * 2_200 + 1)


def test_what_was_learned_changes_the_next_plan() -> None:
    """Of the same kind in another cell, too."""
    planning = NodePlanning(LEARNING, PROFILES)
    plan = planning.plan("match", items=8, others=0)
    assert plan is not None
    planning.complete(plan, 10**9)
    again = planning.plan("match", items=1, others=3)

    assert again is not None
    assert again.conservative_ns == 2_000 * 122 // 100
    assert planning.observations == 1
