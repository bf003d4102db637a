"""Runs a whole project by calling the stages as plain functions, in order: the oracle of ``tracks_sha256``.

No queue, no worker, no governor: what it gets is what every cluster must get.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from governor.model import Estimate, Grant
from tasks import (
    features,
    import_images,
    matching,
    pairs,
    reconstruction,
    tracks,
    verification,
    visual_index,
)
from tasks.feature_sets import FEATURE_KINDS
from tasks.kind import Done, Failed, Job, Kind, Needs, NotReady, Outcome
from tasks.pair_jobs import match_job
from tasks.pairing import pairing_of
from tasks.pairs import pairs_estimate, pairs_job
from tasks.parameters import ProjectParameters
from tasks.reconstruction import model_job
from tasks.store import Project, Source, Store
from tasks.tracks import tracks_job, tracks_key, tracks_sha256
from tasks.verification import VerifiedPair, inlier_edge_count, verifiable_pairs, verified_pairs
from tasks.visual_index import index_job

PROJECT_ID = "plain"
KINDS: dict[str, Kind] = {
    kind.name: kind
    for module in (
        import_images,
        features,
        visual_index,
        pairs,
        matching,
        verification,
        tracks,
        reconstruction,
    )
    for kind in module.KINDS
}


Outcomes = list[Outcome]
MapBatches = Callable[[Callable[["Batch"], Outcomes], Iterable["Batch"]], Iterable[Outcomes]]
"""How batches are run: ``map``, or that of a process pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Jobs of one kind for one call of its callback; can be sent to another process."""

    store: Store
    threads: int
    jobs: tuple[Job, ...]
    estimate: Estimate


class PlainRunError(Exception):
    """A stage answered something that a plain run in the right order never meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainResult:
    """What a plain run made; everything else is in ``store``."""

    store: Store
    project: Project
    image_names: tuple[str, ...]
    """Of the images that took part, sorted."""
    failed_items: tuple[str, ...]
    pairs: tuple[VerifiedPair, ...]
    tracks: tuple[tuple[str, ...], ...]
    """The image names of each track."""
    tracks_sha256: str

    @property
    def accepted_pairs(self) -> int:
        """Return how many pairs have inliers."""
        return sum(len(pair.inliers) > 0 for pair in self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run's setting, and what it has counted."""

    store: Store
    project: Project
    threads: int
    max_batch: int
    map_batches: MapBatches
    recorded_items: dict[str, int] = field(default_factory=dict)


def run_plain(
    photos_folder: Path,
    store_root: Path,
    parameters: ProjectParameters | None = None,
    *,
    threads: int = 1,
    max_batch: int = 64,
    with_model: bool = False,
    map_batches: MapBatches = map,
) -> PlainResult:
    """Import a folder of photos, build its tracks and, if asked, its models.

    ``threads`` are granted to every batch (up to its kind's ceiling);
    ``max_batch`` caps the batches below their kinds' own limits;
    ``map_batches`` runs the batches of a stage.
    """
    store = Store(store_root, import_roots=(photos_folder,))
    store.create()
    project = store.project(PROJECT_ID)
    sources = [
        Source(name=path.relative_to(photos_folder).as_posix(), path=str(path))
        for path in sorted(photos_folder.rglob("*"))
        if path.is_file()
    ]
    project.create(parameters or ProjectParameters(), sources)
    run = _Run(store=store, project=project, threads=threads, max_batch=max_batch, map_batches=map_batches)
    _run_jobs(run, [_import_job(project, source) for source in sources])
    _run_jobs(run, [_features_job(project, image.content) for image in project.images()])
    _run_jobs(run, _index_jobs(project))
    _run_jobs(run, _pairs_jobs(project))
    # All of them, not the follow-ups: those leave a pair that only its larger image proposes to the planner.
    verify_jobs = _run_jobs(run, [match_job(project, *pair) for pair in verifiable_pairs(store, project)])
    _run_jobs(run, verify_jobs)
    _run_jobs(run, [tracks_job(project, inlier_edge_count(store, project))])
    if with_model:
        _run_jobs(run, [model_job(store, project)])
    return _result(run)


def _import_job(project: Project, source: Source) -> Job:
    payload = {"project": project.id, "name": source.name, "source": source.path}
    return Job(kind="import.images", payload=payload, project=project.id, stage="import", item=source.name)


def _features_job(project: Project, content: str) -> Job:
    parameters = project.parameters.features
    payload = {
        "image": content,
        "project": project.id,
        "max_image_size_px": parameters.max_image_size_px,
        "max_features": parameters.max_features,
    }
    kind = FEATURE_KINDS[parameters.extractor]
    return Job(kind=kind, payload=payload, project=project.id, stage="features", item=content)


def _index_jobs(project: Project) -> list[Job]:
    pairing = pairing_of(project)
    return [index_job(project, content) for content in pairing.indexed] if pairing.uses_index else []


def _pairs_jobs(project: Project) -> list[Job]:
    pairing = pairing_of(project)
    return [pairs_job(project, image.content, pairs_estimate(pairing)) for image in pairing.images]


def _run_jobs(run: _Run, jobs: Sequence[Job]) -> list[Job]:
    """Run jobs of one kind in batches; return their follow-ups."""
    follow_ups: list[Job] = []
    if not jobs:
        return follow_ups
    batches = _batches(run, jobs)
    for batch, outcomes in zip(batches, run.map_batches(outcomes_of, batches), strict=True):
        for job, outcome in zip(batch.jobs, outcomes, strict=True):
            follow_ups += _settle(run, job, outcome)
    return follow_ups


def _batches(run: _Run, jobs: Sequence[Job]) -> list[Batch]:
    kind = KINDS[jobs[0].kind]
    size = min(kind.estimate.max_batch, run.max_batch)
    return [
        Batch(
            store=run.store,
            threads=run.threads,
            jobs=tuple(jobs[start : start + size]),
            estimate=jobs[start].estimate or kind.estimate,
        )
        for start in range(0, len(jobs), size)
    ]


def outcomes_of(batch: Batch) -> Outcomes:
    """Run a batch; a job that needs more than its estimate gets it."""
    return [
        _call(replace(batch, jobs=(job,), estimate=outcome.estimate))[0]
        if isinstance(outcome, Needs)
        else outcome
        for job, outcome in zip(batch.jobs, _call(batch), strict=True)
    ]


def _call(batch: Batch) -> Outcomes:
    kind, estimate = KINDS[batch.jobs[0].kind], batch.estimate
    payloads: list[Any] = [kind.payload.model_validate(job.payload) for job in batch.jobs]
    grant = Grant(
        batch=len(payloads),
        cpu_threads=min(batch.threads, estimate.cpu_threads),
        memory_bytes=estimate.memory_bytes(len(payloads)),
        io_slots=estimate.io_slots,
    )
    return list(kind.run(payloads, grant, batch.store))


def _settle(run: _Run, job: Job, outcome: Outcome) -> tuple[Job, ...]:
    match outcome:
        case Done(recorded_items=count, follow_ups=follow_ups):
            run.recorded_items[job.stage] = run.recorded_items.get(job.stage, 0) + count
            return follow_ups
        case Failed(failure=failure):
            run.project.record_failure(job.stage, job.item, failure)
            return ()
        case Needs() | NotReady():
            raise PlainRunError(f"{job.kind} {job.item}: {outcome}")


def _result(run: _Run) -> PlainResult:
    store, project = run.store, run.project
    built = store.read(tracks_key(store, project))
    names = [image["name"] for image in built.metadata["images"]]
    bounds = built.arrays["offsets"].tolist()
    images = built.arrays["image"].tolist()
    return PlainResult(
        store=store,
        project=project,
        image_names=tuple(names),
        failed_items=tuple(item for _, item, _ in project.failures()),
        pairs=tuple(verified_pairs(store, project)),
        tracks=tuple(tuple(names[image] for image in images[begin:end]) for begin, end in pairwise(bounds)),
        tracks_sha256=tracks_sha256(store, project),
    )
