"""Holds the kind ``model.reconstruct``: the sparse models of a project from its verified pairs.

The database is written by :mod:`tasks.colmap_database`, the mapper run by
:mod:`tasks.mapping`; this module brings their inputs and publishes the result.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pycolmap

from governor.model import Grant
from tasks.colmap_database import write_database
from tasks.colmap_inputs import database_images, database_pairs
from tasks.errors import CorruptArtefactError, ItemError, MissingArtefactError, StoreError
from tasks.estimate_forms import EstimateForms
from tasks.georeference import georeference
from tasks.inputs import read_photo_record
from tasks.kind import OF_WHOLE_PROJECTS, Done, Job, Kind, Needs, NotReady, Outcome, Payload
from tasks.mapping import MappedModels, map_database
from tasks.model_files import write_model
from tasks.model_memory import MODEL_FLOORS, MappingSize, model_estimate, workspace_bytes
from tasks.model_report import (
    ModelReport,
    ModelSummary,
    read_report,
    reason_for_no_model,
    summarize,
    write_report,
)
from tasks.pairs import images_for_pairing
from tasks.store import ArtefactKey, Gps, Project, Store, artefact_key
from tasks.tracks import tracks_key
from tasks.verification import verified_pairs

MODEL_KIND = "model.reconstruct"
MODEL_VERSION = 1
MODEL_STAGE = "model"


class ModelPayload(Payload):
    """Reconstruct the sparse models of a project."""

    project: str


def model_key(store: Store, project: Project) -> ArtefactKey:
    """Return the name of a project's models: of what its tracks are made from, and the parameters.

    Raises:
        MissingArtefactError: the pairs of an image are not (any longer) there.
    """
    inputs = (tracks_key(store, project).digest,)
    return artefact_key(MODEL_KIND, MODEL_VERSION, project.parameters.model, inputs)


def model_job(store: Store, project: Project) -> Job:
    """Return the job that reconstructs a project, charged by its size.

    Raises:
        MissingArtefactError: a pair's geometry is not (any longer) there.
    """
    return Job(
        kind=MODEL_KIND,
        payload=ModelPayload(project=project.id).model_dump(mode="json"),
        project=project.id,
        stage=MODEL_STAGE,
        item=project.id,
        estimate=model_estimate(mapping_size(store, project)),
    )


def mapping_size(store: Store, project: Project) -> MappingSize:
    """Count what the mapper will hold.

    Raises:
        MissingArtefactError: a pair's geometry is not (any longer) there.
    """
    images = images_for_pairing(project)
    records = [read_photo_record(store, image.content) for image in images]
    inliers = [len(pair.inliers) for pair in verified_pairs(store, project)]
    return MappingSize(
        images=len(images),
        features=len(images) * project.parameters.features.max_features,
        pairs=len(inliers),
        inlier_matches=sum(inliers),
        largest_photo_px=max((record.width_px * record.height_px for record in records), default=0),
    )


def model_report(store: Store, project: Project) -> ModelReport:
    """Read the report of a project's models.

    Raises:
        MissingArtefactError: they are not reconstructed yet.
        CorruptArtefactError: the folder is damaged.
    """
    return read_report(model_folder(store, project))


def model_summaries(store: Store, project: Project) -> list[ModelSummary]:
    """Return the figures of a project's models, best first; errors as :func:`model_report`."""
    return list(model_report(store, project).models)


def model_folder(store: Store, project: Project) -> Path:
    """Return the folder with summary.json and 0/, 1/, ... in COLMAP's binary form; errors as above."""
    folder = store.folder(model_key(store, project))
    if folder is None:
        raise MissingArtefactError(f"project {project.id} has no model yet")
    return folder


def run_reconstruction(payloads: Sequence[ModelPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish the models of each project: a folder, see :func:`model_folder`.

    No model is a result too, with its reason in the report.
    """
    for payload in payloads:
        try:
            yield _reconstruct(store.project(payload.project), grant, store)
        except MissingArtefactError as error:
            yield NotReady(cause=str(error))


def _reconstruct(project: Project, grant: Grant, store: Store) -> Outcome:
    key = model_key(store, project)
    if _is_published(store, key):
        return Done(recorded_items=0)
    size = mapping_size(store, project)
    estimate = model_estimate(size)
    if grant.memory_bytes < estimate.memory_bytes(batch=1):
        return Needs(estimate=estimate)
    threads = min(grant.cpu_threads, estimate.cpu_threads)
    with _workspace(workspace_bytes(size)) as workspace:
        mapped = _map(store, project, workspace, threads)
        report = _georeference_and_report(store, project, mapped)
        store.publish_folder(key, lambda folder: _write(folder, mapped.models, report))
    return Done()


@contextmanager
def _workspace(needed_bytes: int) -> Iterator[Path]:
    """Yield a local folder: SQLite's locks and COLMAP's many small writes have no place on a share.

    Raises:
        StoreError: its disk has too little room; the text says how much, and how to name another.
    """
    place = tempfile.gettempdir()
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < needed_bytes:
        raise StoreError(
            f"the mapper may need {needed_bytes >> 20} MiB for temporary files, and {place} has "
            f"{free_bytes >> 20} MiB free; free space there, or start the worker with another TMPDIR"
        )
    with tempfile.TemporaryDirectory(prefix="tiepoint-model-") as name:
        yield Path(name)


def _is_published(store: Store, key: ArtefactKey) -> bool:
    try:
        return store.folder(key) is not None
    except CorruptArtefactError:
        store.discard(key)
        return False


def _map(store: Store, project: Project, workspace: Path, threads: int) -> MappedModels:
    database, photos, models = (workspace / name for name in ("database.db", "photos", "models"))
    models.mkdir()
    photos.mkdir()
    write_database(
        database,
        database_images(store, project, with_descriptors=False),
        database_pairs(store, project, with_matches=False),
    )
    _link_photos(store, project, photos)
    return map_database(database, photos, models, project.parameters.model, threads)


def _link_photos(store: Store, project: Project, photos: Path) -> None:
    """Give the photos their names; the mapper looks there for the points' colours."""
    for image in images_for_pairing(project):
        link = photos / image.name
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            link.symlink_to(store.photo_path(image.content).resolve())
        except (ItemError, MissingArtefactError):
            # The photo is gone or changed since: its points stay black, the model is the same.
            continue


def _georeference_and_report(store: Store, project: Project, mapped: MappedModels) -> ModelReport:
    positions = _positions(store, project)
    reference = positions[min(positions)] if positions else None
    summaries = tuple(summarize(model, georeference(model, positions, reference)) for model in mapped.models)
    registered = {name for summary in summaries for name in summary.images}
    names = [image.name for image in images_for_pairing(project)]
    return ModelReport(
        models=summaries,
        unregistered_images=tuple(name for name in names if name not in registered),
        reason=None if mapped.models else _reason(store, project, mapped.largest_part),
    )


def _reason(store: Store, project: Project, largest_part: int) -> str:
    contents = [image.content for image in images_for_pairing(project)]
    pairs = verified_pairs(store, project)
    return reason_for_no_model(contents, pairs, project.parameters.model.min_model_size, largest_part)


def _positions(store: Store, project: Project) -> dict[str, Gps]:
    records = {image.name: read_photo_record(store, image.content) for image in images_for_pairing(project)}
    return {name: record.gps for name, record in records.items() if record.gps is not None}


def _write(folder: Path, models: Sequence[pycolmap.Reconstruction], report: ModelReport) -> None:
    for number, model in enumerate(models):
        place = folder / str(number)
        place.mkdir()
        write_model(place, model)
    write_report(folder, report)


def _warm_up() -> None:
    pycolmap.estimate_sim3d(np.eye(3), np.eye(3))


KINDS = (
    Kind(
        name=MODEL_KIND,
        version=MODEL_VERSION,
        stage=MODEL_STAGE,
        estimate=model_estimate(MappingSize()),
        forms=EstimateForms(floors=MODEL_FLOORS),
        payload=ModelPayload,
        run=run_reconstruction,
        warm_up=_warm_up,
        time_limit=OF_WHOLE_PROJECTS,
    ),
)
