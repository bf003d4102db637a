"""Tests of what is said of jobs that ask for what cannot be."""

from typing import Any

import pytest

from governor.planning.profile import CellKey, Durations, ProfileSet
from worker.findings import State
from worker.planning import NodePlanning
from worker.planning_settings import PlanningSettings
from worker.stream_checks import of_streams

KEY = CellKey(kind="match", variant="cpu", batch_class=1, occupancy=0)
DURATIONS = Durations(p50_ns=1, p95_ns=1, p99_ns=100_000_000)
PLANNING = NodePlanning(PlanningSettings(), ProfileSet(cells={KEY: DURATIONS}))
"""One job is planned with 110 ms."""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"class": "high"},
        {"class": "protected", "period_ms": 500},
        {"max_age_ms": 220},
        {"class": "protected", "period_ms": "soon"},
    ],
)
def test_what_can_be_is_fine(headers: dict[str, Any]) -> None:
    """An age of just two plans, too; what cannot be read fails by itself."""
    assert of_streams([("match", headers)], PLANNING).state is State.OK


def test_a_protected_kind_without_a_period_is_told_once() -> None:
    """However many of its jobs wait."""
    found = of_streams([("match", {"class": "protected"})] * 2, None)

    assert found.state is State.WARNING
    assert found.told == "match is protected and tells no period_ms: nothing is left free for its next job"


def test_an_age_below_two_plans_is_told_with_both() -> None:
    """Only where durations are planned, and that kind's are known."""
    told = [("match", {"max_age_ms": 219}), ("track", {"max_age_ms": 1})]

    assert of_streams(told, PLANNING).told == (
        "match is of no use after 219 ms, and one job is planned with 110 ms here"
    )
    assert of_streams(told, None).state is State.OK
