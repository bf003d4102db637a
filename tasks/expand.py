"""Decides what a project needs next: the kind ``pipeline.expand``, its barriers and windows.

It reads the store only: whatever artefact is missing is planned, in pipeline
order, so the same code starts, continues, resumes and repairs a project. Jobs
come in windows, so that a million pairs never wait in the queue at once. Does
not cover how the jobs get there (settling an expand job pushes them).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from governor.model import Estimate, Grant
from tasks.errors import CorruptArtefactError, Failure, MissingArtefactError, Reason
from tasks.feature_memory import ESTIMATES, features_estimate
from tasks.feature_sets import FEATURE_KINDS, features_key
from tasks.features import FeaturePayload
from tasks.import_images import IMPORT_KIND, ImportPayload
from tasks.kind import Done, Job, Kind, Outcome, Payload
from tasks.pair_jobs import (
    match_job,
    matches_key,
    pair_item,
    project_verification_key,
    verification_job,
)
from tasks.pairs import pairing_of, pairs_job
from tasks.reconstruction import model_job, model_key
from tasks.store import Project, Source, Store
from tasks.tracks import tracks_job, tracks_key
from tasks.verification import inlier_edge_count

EXPAND_KIND = "pipeline.expand"
PLAN_STAGE = "plan"
PHASES = ("import", "features", "matching", "tracks", "model")
"""Barriers stand between phases; within `matching` a pair goes from generation to verification on its own."""

WINDOW_JOBS = 512
"""How many jobs one expand pushes, about; a source image of `matching` counts its pairs."""
LOW_WATER_JOBS = 128
"""The next window is pushed when this many are left, so that no node runs dry."""
MAX_STALLS = 3


class ExpandPayload(Payload):
    """Plan the next window of a project."""

    project: str
    until: str = PHASES[-1]
    """The last phase to run."""
    phase: str = PHASES[0]
    """Where the last window was cut..."""
    cursor: int = 0
    """...and after how many of the phase's sources."""
    pending: int = 0
    """How many jobs the last full look at this phase planned."""
    stalls: int = 0
    """How many full looks in a row have found the phase no further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One step of a phase's cursor: the jobs that one source still needs, and their weight in a window."""

    jobs: Sequence[Job]
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    jobs: tuple[Job, ...]
    next_cursor: int
    is_last: bool


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
        yield _expand_or_repair(payload, store, store.project(payload.project))


def _expand_or_repair(payload: ExpandPayload, store: Store, project: Project) -> Done:
    try:
        return _expand(payload, store, project)
    except MissingArtefactError:
        # A damaged artefact was met and discarded: a look from the start plans it again.
        return _expand(payload.model_copy(update={"cursor": 0}), store, project)


def _expand(payload: ExpandPayload, store: Store, project: Project) -> Done:
    last = PHASES.index(payload.until)
    for phase in PHASES[: last + 1]:
        is_continued = phase == payload.phase and payload.cursor > 0
        window = _window(_SOURCES[phase](store, project), payload.cursor if is_continued else 0)
        if not window.jobs and not is_continued:
            continue
        stalls = _stalls(payload, phase, window, is_continued=is_continued)
        if stalls >= MAX_STALLS:
            _give_up(project, window.jobs)
            return _expand(payload.model_copy(update={"stalls": 0, "cursor": 0}), store, project)
        return _planned(payload, phase, window, stalls)
    return Done(recorded_items=0, progress={"state": "done", "phase": "done"})


def _planned(payload: ExpandPayload, phase: str, window: _Window, stalls: int) -> Done:
    """Return the window, and the successor that looks further (or, after the last window, at everything)."""
    successor = payload.model_copy(
        update={
            "phase": phase,
            "cursor": 0 if window.is_last else window.next_cursor,
            "pending": len(window.jobs),
            "stalls": stalls,
        }
    )
    return Done(
        recorded_items=len(window.jobs),
        follow_ups=window.jobs,
        continuation=expand_job(successor),
        continue_at=0 if window.is_last else LOW_WATER_JOBS,
        progress={"phase": phase},
    )


def _window(sources: Iterator[_Source], cursor: int) -> _Window:
    """Cut a window out of a phase: sources from the cursor on, until it is full."""
    jobs: list[Job] = []
    weight = 0
    position = cursor
    for source in islice(sources, cursor, None):
        position += 1
        jobs += source.jobs
        weight += source.weight if source.jobs else 0
        if weight >= WINDOW_JOBS:
            return _Window(jobs=tuple(jobs), next_cursor=position, is_last=False)
    return _Window(jobs=tuple(jobs), next_cursor=position, is_last=True)


def _stalls(payload: ExpandPayload, phase: str, window: _Window, *, is_continued: bool) -> int:
    """Count full looks that find a phase as they left it: its inputs vanish faster than they are made."""
    is_same = phase == payload.phase and payload.pending == len(window.jobs) and not is_continued
    return payload.stalls + 1 if is_same else 0


def _give_up(project: Project, jobs: Sequence[Job]) -> None:
    for job in jobs:
        failure = Failure(
            name=job.item,
            reason=Reason.INTERNAL_ERROR,
            cause=f"{job.kind} has run {MAX_STALLS} times without leaving its result in the store",
            cure="Check the store's disk, then resume the project.",
        )
        project.record_failure(job.stage, job.item, failure)


def _import_sources(_store: Store, project: Project) -> Iterator[_Source]:
    done = project.registrations().keys() | project.failed_items("import")
    for source in project.sources:
        yield _one(import_job(project, source) if source.name not in done else None)


def _feature_sources(store: Store, project: Project) -> Iterator[_Source]:
    failed = project.failed_items("features")
    parameters = project.parameters.features
    for image in project.images():
        is_open = image.content not in failed and not store.has(features_key(image.content, parameters))
        yield _one(features_job(store, project, image.content) if is_open else None)


def import_job(project: Project, source: Source) -> Job:
    """Return the job that imports one source file."""
    payload = ImportPayload(project=project.id, name=source.name, source=source.path, link=project.link)
    return Job(
        kind=IMPORT_KIND,
        payload=payload.model_dump(mode="json"),
        project=project.id,
        stage="import",
        item=source.name,
    )


def features_job(store: Store, project: Project, content: str) -> Job:
    """Return the job that extracts one photo's features, charged by its size."""
    parameters = project.parameters.features
    payload = FeaturePayload(
        image=content,
        project=project.id,
        max_image_size_px=parameters.max_image_size_px,
        max_features=parameters.max_features,
    )
    estimate = features_estimate(store.photo_record(content), parameters)
    return Job(
        kind=FEATURE_KINDS[parameters.extractor],
        payload=payload.model_dump(mode="json"),
        project=project.id,
        stage="features",
        item=content,
        estimate=estimate if estimate != ESTIMATES[parameters.extractor] else None,
    )


def _matching_sources(store: Store, project: Project) -> Iterator[_Source]:
    pairing = pairing_of(project)
    given_up = project.failed_items("pairs")
    failed = project.failed_items("match") | project.failed_items("verify")
    for image in pairing.images:
        if image.content in given_up:
            continue
        partners = pairing.partners(image.content)
        if store.has(pairing.key(image.content)):
            jobs = [
                job
                for right in partners
                if pair_item(image.content, right) not in failed
                and (job := _open_pair(store, project, image.content, right)) is not None
            ]
            yield _Source(jobs=jobs, weight=len(jobs))
        else:
            yield _Source(jobs=[pairs_job(project, image.content)], weight=1 + len(partners))


def _open_pair(store: Store, project: Project, left: str, right: str) -> Job | None:
    """Return the next job of a pair; None when it is verified."""
    parameters = project.parameters
    if store.has(project_verification_key(project, left, right)):
        return None
    if store.has(matches_key(left, right, parameters.features, parameters.matching)):
        return verification_job(project, left, right)
    return match_job(project, left, right)


def _track_sources(store: Store, project: Project) -> Iterator[_Source]:
    is_open = project.images() and not project.failed_items("tracks")
    if is_open and not store.has(tracks_key(store, project)):
        yield _one(tracks_job(project, inlier_edge_count(store, project)))


def _model_sources(store: Store, project: Project) -> Iterator[_Source]:
    is_open = project.images() and not project.failed_items("tracks") | project.failed_items("model")
    if is_open and not _has_model(store, project):
        yield _one(model_job(store, project))


def _has_model(store: Store, project: Project) -> bool:
    key = model_key(store, project)
    try:
        return store.folder(key) is not None
    except CorruptArtefactError:
        store.discard(key)
        return False


def _one(job: Job | None) -> _Source:
    return _Source(jobs=[] if job is None else [job], weight=1)


_SOURCES: dict[str, Callable[[Store, Project], Iterator[_Source]]] = {
    "import": _import_sources,
    "features": _feature_sources,
    "matching": _matching_sources,
    "tracks": _track_sources,
    "model": _model_sources,
}

KINDS: tuple[Kind, ...] = (
    Kind(
        name=EXPAND_KIND,
        version=1,
        stage=PLAN_STAGE,
        estimate=Estimate(memory_fixed_bytes=64 << 20, io_slots=0),
        payload=ExpandPayload,
        run=run,
    ),
)
