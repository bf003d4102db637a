"""A node puts a batch off for the next job of a stream, if that would be late for it alone."""

from dataclasses import replace
from typing import Any

import pytest

from governor.model import Estimate, Grant, Resources
from governor.planning.profile import CellKey, Durations, ProfileSet
from tests.unit.worker.builders import KIND, a_head, a_kind
from worker.claim import Head
from worker.contracts import read_contract
from worker.look_ahead import LookAhead, Occupied
from worker.planning import NodePlanning
from worker.planning_settings import PlanningSettings

MS = 1_000_000
NOW_NS = 1_000_000 * MS
SERVER_NOW_MS = 50_000
LIVE = {"class": "protected", "period_ms": 100, "deadline_ms": 120, "supersede_key": "camera1"}
GRANT = Grant(batch=1, cpu_threads=1, memory_bytes=10)
FULL, ROOM = Resources(), Resources(memory_bytes=10, cpu_threads=1)
DURATIONS = Durations(p50_ns=50 * MS, p95_ns=80 * MS, p99_ns=80 * MS)
"""Planned with 88 ms: the margin is 110 %."""


def a_look_ahead() -> LookAhead:
    """Return one of a node that knows how long jobs of the kind take."""
    profiles = ProfileSet(cells={CellKey(kind=KIND): DURATIONS})
    kind = replace(a_kind(), estimate=Estimate(memory_fixed_bytes=10))
    return LookAhead(planning=NodePlanning(PlanningSettings(), profiles), kinds={KIND: kind})


def live(identity: str, *, captured_ms: int = SERVER_NOW_MS, **headers: Any) -> Head:
    """Return the head of a protected stream."""
    contract = read_contract({**LIVE, "captured_at_ms": captured_ms, **headers})
    return a_head(priority=0, identity=identity, contract=contract)


def after_an_arrival(ms_ago: int, **headers: Any) -> LookAhead:
    """Return one that has seen a job of the stream come so long ago."""
    made = a_look_ahead()
    made.note([live("1", **headers)], NOW_NS - ms_ago * MS, SERVER_NOW_MS)
    return made


def veto(
    made: LookAhead, *, priority: int = 6, running: tuple[Occupied, ...] = (), free: Resources = FULL
) -> str:
    """Return why a batch is put off, "" where it is not."""
    found = made.veto(a_head(priority=priority), GRANT, running, free, NOW_NS)
    return "" if found is None else found.sentence()


def test_a_batch_that_would_make_the_next_job_late_is_put_off() -> None:
    """Planned with 88 ms each, they would take until 26 ms after its deadline; the reason says for what."""
    made = after_an_arrival(70)

    assert veto(made) == f"WAIT LOOK_AHEAD: left for the next protected {KIND}, expected in 0.0 s"
    assert made.vetoes == 1


@pytest.mark.parametrize(("ms_ago", "is_put_off"), [(44, False), (45, True), (99, True)])
def test_a_batch_that_leaves_the_next_job_its_time_is_not(ms_ago: int, is_put_off: bool) -> None:  # noqa: FBT001 - a parameter
    """Both together take 176 ms: as long as an arrival in 56 ms may take, with its deadline of 120."""
    assert bool(veto(after_an_arrival(ms_ago))) is is_put_off


def test_where_there_is_room_for_both_nothing_is_put_off() -> None:
    """Another thread and its memory are free."""
    assert veto(after_an_arrival(70), free=ROOM) == ""


def test_what_would_be_late_anyway_holds_up_nobody() -> None:
    """Another batch holds what it needs until after the deadline, whatever the candidate holds."""
    later = Occupied(grant=GRANT, projected_end_ns=NOW_NS + 1000 * MS)
    little = Grant(batch=1, cpu_threads=1, memory_bytes=1)

    assert after_an_arrival(70).veto(a_head(), little, (later,), FULL, NOW_NS) is None


@pytest.mark.parametrize(("priority", "is_put_off"), [(0, False), (3, True), (6, True), (9, True)])
def test_only_a_lower_class_is_put_off(priority: int, is_put_off: bool) -> None:  # noqa: FBT001 - a parameter
    """The stream's own class is not its own obstacle."""
    assert bool(veto(after_an_arrival(70), priority=priority)) is is_put_off


@pytest.mark.parametrize("headers", [{"period_ms": None}, {"class": "best_effort"}])
def test_what_is_not_periodic_or_not_urgent_is_not_foreseen(headers: dict[str, Any]) -> None:
    """Nobody knows when it comes, or it may wait."""
    made = a_look_ahead()
    head = live("1", **headers)
    made.note([replace(head, priority=6) if "class" in headers else head], NOW_NS - 70 * MS, SERVER_NOW_MS)

    assert veto(made) == ""


def test_the_same_job_seen_again_is_no_arrival() -> None:
    """It waits; the next one is still reckoned from when it came."""
    made = after_an_arrival(70)
    made.note([live("1")], NOW_NS - 5 * MS, SERVER_NOW_MS)

    assert veto(made) != ""


def test_a_stream_that_has_ended_is_forgotten() -> None:
    """After a hundred periods without a job."""
    made = after_an_arrival(70 + 100 * 100)
    made.note([], NOW_NS, SERVER_NOW_MS)

    assert veto(made) == ""


def test_a_kind_without_a_profile_is_not_put_off() -> None:
    """Nobody knows how long it takes."""
    made = after_an_arrival(70)
    found = made.veto(a_head(kind="other"), GRANT, (), FULL, NOW_NS)

    assert found is None


def test_streams_are_bounded() -> None:
    """The one that was seen longest ago goes."""
    made = a_look_ahead()
    for number in range(65):
        made.note([live("1", supersede_key=f"camera{number}")], NOW_NS, SERVER_NOW_MS)

    assert len(made._streams) == 64
    assert (KIND, "camera0") not in made._streams
