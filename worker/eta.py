"""Says in how many seconds a project will be done: the jobs that are left, by what such jobs take.

A job takes what those of its stage have taken in this project. For a stage
that has not begun it is what the reference profiles say, as much more or less
as the others have differed from them so far; before anything was done, as
much as the nodes have learned. Does not cover how many jobs are left to be
planned (:mod:`tasks.outlook`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from governor.planning.profile import ProfileSet
from tasks.catalog import STAGES, load_kinds
from tasks.outlook import IMAGES, PARTNERS
from worker.live_nodes import LiveNode
from worker.profile_file import read_profiles
from worker.project_state import ProjectState

_PHASES = (("import",), ("features",), ("match", "verify"), ("tracks",), ("model",))
"""Stages that run beside each other. `index` and `pairs` take milliseconds and are left out."""
_OF_WHOLE_PROJECTS = ("tracks", "model")
"""One job each, on one node; it takes the longer the more inliers the project's pairs have."""
_REFERENCE_IMAGES, _REFERENCE_INLIERS = 15, 147_211
"""So many photos and inliers has the project that the reference profiles were measured with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What jobs take on the machine that the reference profiles come from."""

    seconds: Mapping[str, float]
    """Of one job, by stage."""
    stages: Mapping[str, str]
    """The stage of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worked:
    """What was done of a stage so far."""

    items: int
    batches: int
    busy_seconds: float
    """Of all batches together."""


_NOTHING = _Worked(items=0, batches=0, busy_seconds=0.0)


def eta_seconds(state: ProjectState, reference: Reference, nodes: Sequence[LiveNode] = ()) -> float | None:
    """Return in how many seconds a running project will be done, about; None where nothing tells."""
    if state.state != "running" or not state.ahead:
        return None
    worked = _worked(state, reference.stages)
    pace = _pace(worked, reference) or _learned_pace(nodes)
    widths = _widths(state, worked)
    width = max(widths.items(), key=lambda found: _busy(found[0], worked), default=((), _threads(nodes)))[1]
    if not pace or not width:
        return None
    left = _jobs_left(state)
    seconds = 0.0
    for phase in _PHASES:
        work = sum(left[stage] * _job_seconds(stage, state, worked, reference, pace) for stage in phase)
        beside = 1.0 if phase[0] in _OF_WHOLE_PROJECTS else widths.get(phase, width)
        seconds += max(work / beside - _half_a_batch(phase, worked), 0.0)
    return seconds


@cache
def shipped_reference() -> Reference:
    """Return what the profiles say that came with this version."""
    return reference_of(read_profiles(None))


def reference_of(profiles: ProfileSet) -> Reference:
    """Return what profiles say of our own stages: of kinds that share one the slowest counts."""
    stages = {name: kind.stage for name, kind in load_kinds().items() if kind.stage in STAGES}
    seconds: dict[str, float] = {}
    for kind, cost in profiles.linear.items():
        if stage := stages.get(kind):
            seconds[stage] = max(seconds.get(stage, 0.0), cost.per_item_ns / 1e9)
    return Reference(seconds=seconds, stages=stages)


def _worked(state: ProjectState, stages: Mapping[str, str]) -> dict[str, _Worked]:
    found: dict[str, _Worked] = {}
    for kind, told in state.kinds.items():
        stage, items = stages.get(kind), told.get("items", 0)
        if stage is not None and items > 0:
            before = found.get(stage, _NOTHING)
            found[stage] = _Worked(
                items=before.items + items,
                batches=before.batches + told["batches"],
                busy_seconds=before.busy_seconds + told["busy_seconds"],
            )
    return found


def _pace(worked: Mapping[str, _Worked], reference: Reference) -> float | None:
    """Return how much longer than on the machine of reference it all has taken; None before anything has."""
    known = {stage: done for stage, done in worked.items() if stage in reference.seconds}
    expected = sum(done.items * reference.seconds[stage] for stage, done in known.items())
    return sum(done.busy_seconds for done in known.values()) / expected if expected else None


def _learned_pace(nodes: Iterable[LiveNode]) -> float | None:
    """Return the mean of the factors that nodes have learned; None where none learns."""
    told = [node.planning.get("device_factor_percent", 0) / 100 for node in nodes]
    learned = [factor for factor in told if factor]
    return sum(learned) / len(learned) if learned else None


def _widths(state: ProjectState, worked: Mapping[str, _Worked]) -> dict[tuple[str, ...], float]:
    """Return how many batches have run beside each other in each phase that was measured.

    Busy counts a batch when it has ended. Those that ran at the last end are half
    through, about: width = busy / (elapsed - mean duration / 2).
    """
    widths: dict[tuple[str, ...], float] = {}
    for phase in _PHASES:
        found = [state.stages[stage] for stage in phase if stage in state.stages]
        ended_ms = max((stage.finished_ms for stage in found), default=0)
        elapsed = (ended_ms - min((stage.started_ms for stage in found), default=0)) / 1000
        if ended_ms and elapsed > 0 and (busy := _busy(phase, worked)):
            widths[phase] = busy / max(elapsed - _half_a_batch(phase, worked), elapsed / 2)
    return widths


def _busy(phase: Iterable[str], worked: Mapping[str, _Worked]) -> float:
    return sum(worked[stage].busy_seconds for stage in phase if stage in worked)


def _half_a_batch(phase: Iterable[str], worked: Mapping[str, _Worked]) -> float:
    batches = sum(worked[stage].batches for stage in phase if stage in worked)
    return _busy(phase, worked) / batches / 2 if batches else 0.0


def _threads(nodes: Iterable[LiveNode]) -> int:
    return sum(node.budget_cpu_threads for node in nodes)


def _jobs_left(state: ProjectState) -> dict[str, int]:
    """Return the jobs of each stage that are not done: planned, to be planned, and what follows."""
    left = {
        stage: (state.stages[stage].open if stage in state.stages else 0) + state.ahead.get(stage, 0)
        for stage in STAGES
    }
    left["match"] += left["pairs"] * state.ahead.get(PARTNERS, 0)
    left["verify"] += left["match"]
    return left


def _job_seconds(
    stage: str, state: ProjectState, worked: Mapping[str, _Worked], reference: Reference, pace: float
) -> float:
    if stage in _OF_WHOLE_PROJECTS:
        return reference.seconds.get(stage, 0.0) * _size(state) * pace
    if stage in worked:
        return worked[stage].busy_seconds / worked[stage].items
    return reference.seconds.get(stage, 0.0) * pace


def _size(state: ProjectState) -> float:
    """Return how large a project will be beside that of reference: by inliers, or else by images."""
    verified = state.stages["verify"].done if "verify" in state.stages else 0
    if not verified or not state.inliers:
        return state.ahead.get(IMAGES, 0) / _REFERENCE_IMAGES
    pairs = verified + _jobs_left(state)["verify"]
    return state.inliers * pairs / verified / _REFERENCE_INLIERS


def in_words(seconds: float) -> str:
    """Return e.g. "about 40 s left": no more digits than are worth believing."""
    for unit, unit_seconds in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_seconds:
            return f"about {seconds / unit_seconds:.0f} {unit} left"
    return f"about {max(round(seconds, -1), 10):.0f} s left" if seconds >= 10 else "a few seconds left"
