"""Drives a real worker with three live streams around full load, with right and wrong profiles, and counts.

First the kinds are measured, which gives the right profiles and the load of
100 %. Then come the runs, repeat by repeat, margins alternating. Does not
cover how it is shown (:mod:`worker.ramp_command`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from governor.planning.profile import MIN_SAMPLES, CellKey, ProfileSet
from worker.calibrate import conditions
from worker.calibration import profiles_of
from worker.duration_log import read_durations
from worker.fingerprint import fingerprint_of
from worker.local_run import part_of_machine
from worker.node import Node
from worker.planning_settings import MarginLearning, PlanningSettings
from worker.profile_file import write_profiles
from worker.ramp_scene import OPTIONS, Live, RampScene
from worker.ramp_streams import (
    LONGEST_PERIODS,
    NS_PER_MS,
    STREAMS,
    due_in,
    frames,
    period_ms,
    uncovered_permille,
    work_ms,
)
from worker.scaled_profiles import permille_of, scaled

Margin = Literal["fixed", "learned"]
WARM_UP_JOBS, ROUNDS = 20, 30
_FULL_LOAD = 100
_LEAST_NOISE_PERMILLE, _NOISE_SHARE = 5, 0.1
OnProgress = Callable[[str, int, int], None]
"""Is told what is done next, as number so and so of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs there are."""

    loads: Sequence[int]
    """In percent of what was measured."""
    profiles: Sequence[str]
    """As :func:`worker.scaled_profiles.permille_of` reads them."""
    margins: Sequence[Margin]
    cycles: int
    """Periods of the fastest stream in a run."""
    repeats: int
    samples: int = 4 * MIN_SAMPLES
    """Of each kind, for the right profile: of 100 the p99 would be the longest, and one hiccup decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run; or the runs of one profile, load and margin, by the medians over the repeats."""

    profile: str
    load: int
    margin: Margin
    detector: int
    """Uncovered windows of the protected stream, in permille..."""
    worst_high: int
    """...and of the worse of the other two."""
    vetoes: int
    delivered: int
    device_factor_percent: int
    """What the node had learned at the end; 0 = nothing is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """What came out."""

    p50_ms: dict[str, float]
    """Of each kind, as measured at first..."""
    p99_ms: dict[str, float]
    """...what plans start from."""
    capacity_ms: float
    """The period of the fastest stream at 100 % load: in which one thread has worked off what comes in it."""
    gap_ms: float
    """What passes of that between the end of a job and the start of the next, for each job."""
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    load: int
    profile: str
    margin: Margin
    seed: int
    is_counted: bool = True


def ramp(scene: RampScene, wanted: Wanted, on_progress: OnProgress) -> Ramp:
    """Measure, then run everything that is wanted.

    Raises:
        RunError: server or worker ended, or a job did not.
        WrongSettingError: another worker has the machine.
    """
    runs = list(_runs(wanted))
    on_progress("measuring", 0, len(runs))
    profiles, capacity = _measure(scene, wanted.samples)
    p50_ns = {key.kind: durations.p50_ns for key, durations in profiles.cells.items()}
    p99_ns = {key.kind: durations.p99_ns for key, durations in profiles.cells.items()}
    found = []
    for number, run in enumerate(runs, start=1):
        on_progress(f"{run.profile}, {run.load} %, {run.margin} margin", number, len(runs))
        row = _drive(scene, run, profiles, capacity, wanted.cycles)
        if run.is_counted:
            found.append(row)
    return Ramp(
        p50_ms={kind: ns / NS_PER_MS for kind, ns in sorted(p50_ns.items())},
        p99_ms={kind: ns / NS_PER_MS for kind, ns in sorted(p99_ns.items())},
        capacity_ms=capacity,
        gap_ms=(capacity - work_ms(p50_ns)) / sum(1 / stream.periods for stream in STREAMS),
        rows=tuple(medians(found)),
    )


def is_noise(one: int, other: int) -> bool:
    """Tell whether two shares of uncovered windows differ by less than 5 permille or a tenth."""
    return abs(one - other) < max(_LEAST_NOISE_PERMILLE, _NOISE_SHARE * max(one, other))


def like_right(row: Row, rows: Sequence[Row]) -> bool | None:
    """Tell whether a wrong profile does as well as the right one; None where there is nothing to compare."""
    for right in rows:
        if row.profile != right.profile == "right" and (right.load, right.margin) == (row.load, row.margin):
            pairs = ((row.detector, right.detector), (row.worst_high, right.worst_high))
            return all(is_noise(one, other) or one < other for one, other in pairs)
    return None


def medians(found: Sequence[Row]) -> Iterator[Row]:
    """Yield one row for each profile, load and margin, in the order in which they were met."""
    groups: dict[tuple[str, int, Margin], list[Row]] = {}
    for row in found:
        groups.setdefault((row.profile, row.load, row.margin), []).append(row)
    for (profile, load, margin), rows in groups.items():
        yield Row(
            profile=profile,
            load=load,
            margin=margin,
            detector=round(median(row.detector for row in rows)),
            worst_high=round(median(row.worst_high for row in rows)),
            vetoes=round(median(row.vetoes for row in rows)),
            delivered=round(median(row.delivered for row in rows)),
            device_factor_percent=round(median(row.device_factor_percent for row in rows)),
        )


def _runs(wanted: Wanted) -> Iterator[_Run]:
    """Yield the runs; first, where factors are learned, one for each profile that does not count."""
    if "learned" in wanted.margins:
        for profile in wanted.profiles:
            yield _Run(load=_FULL_LOAD, profile=profile, margin="learned", seed=0, is_counted=False)
    for repeat in range(wanted.repeats):
        for load in wanted.loads:
            for profile in wanted.profiles:
                for margin in wanted.margins if repeat % 2 == 0 else reversed(wanted.margins):
                    yield _Run(load=load, profile=profile, margin=margin, seed=repeat + 1)


def _measure(scene: RampScene, samples: int) -> tuple[ProfileSet, float]:
    """Return the profiles of the streams' kinds, each job alone; and the period of full load."""
    log_path = scene.folder / "durations"
    with scene.worker(None, durations=log_path) as live:
        for stream in STREAMS:
            live.work(stream, WARM_UP_JOBS + samples)
        capacity = median(_full_load_ms(live) for _ in range(ROUNDS))
    batches = []
    for stream in STREAMS:
        of_kind = [batch for batch in read_durations(log_path) if batch.kind == stream.kind]
        batches += of_kind[WARM_UP_JOBS : WARM_UP_JOBS + samples]
    hardware = fingerprint_of(Node(part_of_machine(OPTIONS)))
    return profiles_of(batches, conditions(), hardware).profiles, capacity


def _full_load_ms(live: Live) -> float:
    """Return how long what comes in a period took when it was worked off at once, gaps and all."""
    return sum(live.round_ms(due_in(number)) for number in range(LONGEST_PERIODS)) / LONGEST_PERIODS


def _drive(scene: RampScene, run: _Run, profiles: ProfileSet, capacity: float, cycles: int) -> Row:
    period = period_ms(capacity, run.load)
    with scene.worker(_planning(scene.folder, run, profiles)) as live:
        deliveries = live.drive(frames(period, cycles, run.seed), period)
        told = _told(live)
    detector, *others = (uncovered_permille(stream, deliveries, period, cycles) for stream in STREAMS)
    return Row(
        profile=run.profile,
        load=run.load,
        margin=run.margin,
        detector=detector,
        worst_high=max(others),
        delivered=len(deliveries),
        **told,
    )


def _told(live: Live) -> dict[str, int]:
    planning = live.planning()
    return {name: int(planning.get(name, 0)) for name in ("vetoes", "device_factor_percent")}


def _planning(folder: Path, run: _Run, profiles: ProfileSet) -> PlanningSettings:
    path = folder / f"profiles-{run.profile}.json"
    write_profiles(path, scaled(profiles, permille_of(run.profile, "--profiles")), _samples(profiles))
    learning = MarginLearning() if run.margin == "learned" else None
    return PlanningSettings(margin_learning=learning, profiles=path)


def _samples(profiles: ProfileSet) -> dict[CellKey, int]:
    return dict.fromkeys(profiles.cells, MIN_SAMPLES)
