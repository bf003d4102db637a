"""Decides what a project needs next: the kind ``pipeline.expand``, its barriers and windows.

It reads the store only: whatever artefact is missing is planned, in pipeline
order, so the same code starts, continues, resumes and repairs a project. Jobs
come in windows, so that a million pairs never wait in the queue at once. What
a phase lacks is read in :mod:`tasks.lacking`, when to give up is decided in
:mod:`tasks.looks`. Does not cover how the jobs get there (settling an expand
job pushes them).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from governor.model import Estimate, Grant
from tasks.errors import Failure, MissingArtefactError, Reason
from tasks.estimate_forms import EstimateForms
from tasks.kind import OF_WHOLE_PROJECTS, Done, Job, Kind, Outcome, Payload
from tasks.lacking import PHASES, Phase, ProjectView, lacking_jobs
from tasks.looks import MAX_STALLS, History, Look
from tasks.outlook import AHEAD, jobs_ahead
from tasks.store import Project, Store, canonical_json

__all__ = ["PHASES", "ExpandPayload", "Phase", "expand_job"]

EXPAND_KIND = "pipeline.expand"
PLAN_STAGE = "plan"

WINDOW_JOBS = 512
"""How many jobs one expand pushes, about; a source image of `matching` counts its pairs."""
LOW_WATER_JOBS = 128
"""The next window is pushed when this many are left, so that no node runs dry."""
EACH_PAIRS_JOB = "pairs:each"
"""Field of a project's live state: how many jobs may follow from one of the stage `pairs`. What such jobs
promise bounds how far the plan runs ahead, for what they bring is no window's."""
_COUNTS_AS: Mapping[str, int] = {"features": 4}
"""So many jobs of other phases run in the time of one of these: other projects wait for all of a window."""
_MAX_FRESH_LOOKS = 8


class ExpandPayload(Payload):
    """Plan the next window of a project."""

    project: str
    until: Phase = "model"
    """The last phase to run."""
    phase: Phase = "import"
    """Where the last window was cut..."""
    cursor: int = 0
    """...and after how many of the phase's sources; 0 = look at the project from its start."""
    planned: int = 0
    """How many jobs the windows of this look have planned so far..."""
    digest: str = ""
    """...and which."""
    history: History = History()
    """What the looks before this one have come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    phase: Phase
    jobs: tuple[Job, ...]
    cursor: int
    next_cursor: int
    is_last: bool
    most_each: int = 1
    """The largest weight of a job: so many follow from a source image that has still to name its partners."""


def expand_job(payload: ExpandPayload) -> Job:
    """Return the job that plans a project's next window."""
    return Job(
        kind=EXPAND_KIND,
        payload=payload.model_dump(mode="json"),
        project=payload.project,
        stage=PLAN_STAGE,
        item=f"{payload.phase}:{payload.cursor}",
    )


def run(payloads: Sequence[ExpandPayload], _grant: Grant, store: Store) -> Iterator[Outcome]:
    """Plan the next window of each project; the follow-ups are pushed when the outcome is settled."""
    for payload in payloads:
        yield _expand(payload, store, store.project(payload.project))


def _expand(payload: ExpandPayload, store: Store, project: Project) -> Done:
    """Plan a window; start from the project's start where damage was met (and discarded) on the way.

    Raises:
        MissingArtefactError: that did not help.
    """
    for _ in range(_MAX_FRESH_LOOKS):
        try:
            return _plan(payload, ProjectView(store=store, project=project))
        except MissingArtefactError as error:
            lost = error
            payload = payload.model_copy(update={"cursor": 0, "planned": 0, "digest": ""})
    raise lost


def _plan(payload: ExpandPayload, view: ProjectView) -> Done:
    if payload.cursor > 0:
        look = Look(phase=payload.phase, jobs=payload.planned, digest=payload.digest)
        return _planned(payload, look, _window(view, payload.phase, payload.cursor), view.project)
    return _look_from_the_start(payload, view)


def _look_from_the_start(payload: ExpandPayload, view: ProjectView) -> Done:
    for phase in PHASES[: PHASES.index(payload.until) + 1]:
        if payload.history.is_suspicious and payload.history.is_hopeless(_whole_look(view, phase)):
            _give_up(view, phase)
            return _look_from_the_start(payload, ProjectView(store=view.store, project=view.project))
        window = _window(view, phase, cursor=0)
        if phase == "import" and not window.jobs:
            view.project.index_registrations()
        if window.jobs:
            return _planned(payload, Look(phase=phase), window, view.project)
    return Done(recorded_items=0, progress={"state": "done", "phase": "done"})


def _planned(payload: ExpandPayload, look: Look, window: _Window, project: Project) -> Done:
    """Return the window, and the successor that looks further (or, after the last window, at everything)."""
    look = look.with_jobs(window.jobs)
    ahead = jobs_ahead(
        project,
        window.phase,
        payload.until,
        window=window.jobs,
        looked_at=window.next_cursor - window.cursor,
        rest=0 if window.is_last else max(len(project.sources) - window.next_cursor, 0),
    )
    if window.is_last:
        notes = {"cursor": 0, "planned": 0, "digest": "", "history": payload.history.after(look)}
    else:
        notes = {"cursor": window.next_cursor, "planned": look.jobs, "digest": look.digest}
    return Done(
        recorded_items=len(window.jobs),
        follow_ups=window.jobs,
        continuation=expand_job(payload.model_copy(update={"phase": look.phase, **notes})),
        continue_at=0 if window.is_last else LOW_WATER_JOBS // _COUNTS_AS.get(look.phase, 1),
        progress={
            "state": "running",
            "phase": look.phase,
            EACH_PAIRS_JOB: str(window.most_each),
            AHEAD: canonical_json(dict(ahead)),
        },
    )


def _window(view: ProjectView, phase: Phase, cursor: int) -> _Window:
    """Cut a window out of a phase: sources from the cursor on, until it is full."""
    jobs: list[Job] = []
    weight, most_each = 0, 1
    position, is_last = cursor, True
    for source in lacking_jobs(view, phase, cursor):
        position += 1
        jobs += source.jobs
        weight += source.weight * _COUNTS_AS.get(phase, 1) if source.jobs else 0
        if source.jobs:
            most_each = max(most_each, source.weight // len(source.jobs))
        if weight >= WINDOW_JOBS:
            is_last = False
            break
    return _Window(
        phase=phase,
        jobs=tuple(jobs),
        cursor=cursor,
        next_cursor=position,
        is_last=is_last,
        most_each=most_each,
    )


def _whole_look(view: ProjectView, phase: Phase) -> Look:
    """Return what a look at a phase would find, without keeping its jobs."""
    look = Look(phase=phase)
    for source in lacking_jobs(view, phase):
        look = look.with_jobs(source.jobs)
    return look


def _give_up(view: ProjectView, phase: Phase) -> None:
    """Quarantine all that a phase lacks."""
    for job in (job for source in lacking_jobs(view, phase) for job in source.jobs):
        failure = Failure(
            name=job.item,
            reason=Reason.INTERNAL_ERROR,
            cause=f"{job.kind} was planned {MAX_STALLS} times and its result is still not in the store",
            cure="Check the store's disk, then resume the project.",
        )
        view.project.record_failure(job.stage, job.item, failure)


KINDS: tuple[Kind, ...] = (
    Kind(
        name=EXPAND_KIND,
        version=1,
        stage=PLAN_STAGE,
        estimate=Estimate(memory_fixed_bytes=64 << 20, io_slots=0),
        forms=EstimateForms(),
        payload=ExpandPayload,
        run=run,
        time_limit=OF_WHOLE_PROJECTS,
    ),
)
