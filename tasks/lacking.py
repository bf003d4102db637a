"""Reads from the store which jobs each phase of a project lacks, source by source.

What a window is and when a phase is looked at is decided in
:mod:`tasks.expand`. A phase's sources are listed lazily from a given one on:
those before it cost no look into the store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from tasks.errors import CorruptArtefactError, Failure, MissingArtefactError, Reason
from tasks.feature_memory import ESTIMATES, features_estimate
from tasks.feature_sets import FEATURE_KINDS
from tasks.features import FeaturePayload
from tasks.import_images import IMPORT_KIND, ImportPayload
from tasks.index_memberships import is_indexed
from tasks.inputs import read_photo_record
from tasks.kind import Job
from tasks.pair_jobs import (
    match_job,
    matches_key,
    pair_item,
    project_verification_key,
    verification_job,
)
from tasks.pairing import images_for_pairing, pairing_of
from tasks.pairs import pairs_estimate, pairs_job
from tasks.proposals import Proposals
from tasks.reconstruction import model_job, model_key
from tasks.results import has_all_of_photo, is_imported
from tasks.store import Project, ProjectImage, Source, Store
from tasks.tracks import tracks_job, tracks_key
from tasks.verification import inlier_edge_count
from tasks.visual_index import index_job

Phase = Literal["import", "features", "index", "matching", "tracks", "model"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""Barriers stand between phases; within `matching` a pair goes from generation to verification on its own.

`index` has jobs only where pairs come from the visual index."""


@dataclass(frozen=True, kw_only=True)
class ProjectView:
    """A project as one plan sees it; what is quarantined and registered is read once."""

    store: Store
    project: Project

    @cached_property
    def failures(self) -> Mapping[tuple[str, str], Failure]:
        """Return every failure by (stage, item)."""
        return {(stage, item): failure for stage, item, failure in self.project.failures()}

    @cached_property
    def registrations(self) -> Mapping[str, str]:
        """Return the content of every registered name."""
        return self.project.registrations()

    def has_failed(self, stage: str, item: str) -> bool:
        """Tell whether an item is quarantined."""
        return (stage, item) in self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJobs:
    """The jobs that one source of a phase still lacks, and their weight in a window."""

    jobs: Sequence[Job] = ()
    weight: int = 1


_NOTHING = SourceJobs()


def lacking_jobs(view: ProjectView, phase: Phase, start: int = 0) -> Iterator[SourceJobs]:
    """Yield what each source of a phase lacks, from the source number ``start`` on.

    Raises:
        MissingArtefactError: something that an earlier phase makes is lost, or
            was damaged and is discarded now: look at the project from its start.
    """
    return _SOURCES[phase](view, start)


def _import_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    for source in view.project.sources[start:]:
        if view.has_failed("import", source.name) or is_imported(view.store, view.project, source.name):
            yield _NOTHING
        else:
            yield SourceJobs(jobs=[import_job(view.project, source)])


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


def _feature_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    for image in view.project.images()[start:]:
        has_failed = view.has_failed("features", image.content)
        if has_failed or has_all_of_photo(view.store, view.project, image.content):
            yield _NOTHING
        elif view.store.has_photo(image.content):
            yield SourceJobs(jobs=[features_job(view.store, view.project, image)])
        else:
            _quarantine_lost(view, image)
            yield _NOTHING


def _quarantine_lost(view: ProjectView, image: ProjectImage) -> None:
    """Leave out a photo that is lost and that none of its sources could bring back."""
    names = sorted(
        source.name for source in view.project.sources if view.registrations.get(source.name) == image.content
    )
    if not all(view.has_failed("import", name) for name in names):
        raise MissingArtefactError(f"{image.name} is not in the store any more")
    failure = view.failures["import", names[0]] if names else _without_source(image)
    view.project.record_failure("features", image.content, failure)


def _without_source(image: ProjectImage) -> Failure:
    """Return the failure of a lost photo that was imported by hand, under a name that is no source's."""
    return Failure(
        name=image.name,
        reason=Reason.LOST,
        cause=f"{image.name} is lost: what the project has of it is damaged or gone, and it has no source",
        cure="Import the photo again under the same name, then resume the project.",
    )


def features_job(store: Store, project: Project, image: ProjectImage) -> Job:
    """Return the job that extracts one photo's features, charged by its size.

    Raises:
        MissingArtefactError: the photo's record is not (any longer) there.
    """
    parameters = project.parameters.features
    payload = FeaturePayload(
        image=image.content,
        project=project.id,
        max_image_size_px=parameters.max_image_size_px,
        max_features=parameters.max_features,
    )
    estimate = features_estimate(read_photo_record(store, image.content), parameters)
    return Job(
        kind=FEATURE_KINDS[parameters.extractor],
        payload=payload.model_dump(mode="json"),
        project=project.id,
        stage="features",
        item=image.content,
        name=image.name,
        estimate=estimate if estimate != ESTIMATES[parameters.extractor] else None,
    )


def _index_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    pairing = pairing_of(view.project)
    if not pairing.uses_index:
        return
    for image in pairing.images[start:]:
        digest = pairing.indexed.get(image.content)
        if digest is None or is_indexed(view.store, digest):
            yield _NOTHING
        else:
            yield SourceJobs(jobs=[index_job(view.project, image.content)])


def _matching_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    pairing = pairing_of(view.project)
    failed = {image.content for image in pairing.images if view.has_failed("pairs", image.content)}
    proposals = Proposals(view.store, pairing, failed)
    estimate = pairs_estimate(pairing)
    for image in pairing.images[start:]:
        content = image.content
        if content in failed:
            yield _NOTHING
        elif proposals.are_published(content):
            owned = proposals.owned_pairs(content)
            jobs = [job for pair in owned if (job := _open_pair(view, *pair)) is not None]
            yield SourceJobs(jobs=jobs, weight=len(jobs))
        else:
            job = pairs_job(view.project, content, estimate)
            yield SourceJobs(jobs=[job], weight=1 + pairing.most_partners(content))


def _open_pair(view: ProjectView, left: str, right: str) -> Job | None:
    """Return the next job of a pair; None when it is verified or has failed."""
    store, project, item = view.store, view.project, pair_item(left, right)
    if view.has_failed("match", item) or view.has_failed("verify", item):
        return None
    if store.has(project_verification_key(project, left, right)):
        return None
    if store.has(matches_key(left, right, project.parameters.features, project.parameters.matching)):
        return verification_job(project, left, right)
    return match_job(project, left, right)


def _track_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    store, project = view.store, view.project
    if start or view.has_failed("tracks", project.id) or not images_for_pairing(project):
        return
    if not _has_tracks(store, project):
        yield SourceJobs(jobs=[tracks_job(project, inlier_edge_count(store, project))])


def _has_tracks(store: Store, project: Project) -> bool:
    """Tell whether the tracks are whole: no later job reads them, so nobody else would notice."""
    key = tracks_key(store, project)
    if store.has(key) and not store.is_intact(key):
        store.discard(key)
    return store.has(key)


def _model_sources(view: ProjectView, start: int) -> Iterator[SourceJobs]:
    store, project = view.store, view.project
    has_failed = view.has_failed("tracks", project.id) or view.has_failed("model", project.id)
    if start or has_failed or not images_for_pairing(project):
        return
    if not _has_model(store, project):
        yield SourceJobs(jobs=[model_job(store, project)])


def _has_model(store: Store, project: Project) -> bool:
    key = model_key(store, project)
    try:
        return store.folder(key) is not None
    except CorruptArtefactError:
        store.discard(key)
        return False


_SOURCES: Mapping[Phase, Callable[[ProjectView, int], Iterator[SourceJobs]]] = {
    "import": _import_sources,
    "features": _feature_sources,
    "index": _index_sources,
    "matching": _matching_sources,
    "tracks": _track_sources,
    "model": _model_sources,
}
