"""Holds the kind ``track_builder.run``: the tracks of a project from its verified pairs.

How edges become tracks is decided in :mod:`tasks.track_graph`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from governor.model import UINT64_MAX, Estimate, Grant
from tasks.errors import MissingArtefactError, TasksError
from tasks.estimate_forms import EstimateForms
from tasks.inputs import read_features
from tasks.kind import OF_WHOLE_PROJECTS, Done, Job, Kind, Needs, NotReady, Outcome, Payload
from tasks.pair_jobs import project_verification_key
from tasks.pairs import images_for_pairing
from tasks.store import ArtefactKey, Json, Project, ProjectImage, Store, artefact_key, canonical_json
from tasks.track_graph import FEATURE_BITS, Edges, TrackSet, build_tracks, node_numbers
from tasks.verification import inlier_edge_count, verifiable_pairs, verified_pairs

TRACKS_KIND = "track_builder.run"
TRACKS_VERSION = 1
TRACKS_STAGE = "tracks"

_BASE_BYTES = 4 << 20
_BYTES_PER_EDGE = 48 + 2 * 160
_FEW_EDGES = 400_000
_FEW_EDGES_FACTOR, _MANY_EDGES_FACTOR = 2, 8


class EstimateOverflowError(TasksError):
    """A computed estimate does not fit 64 bits."""


class TracksPayload(Payload):
    """Build the tracks of a project."""

    project: str


def tracks_estimate(inlier_edges: int) -> Estimate:
    """Return what building tracks of so many inlier matches needs.

    (4 MiB + E * (48 + 2 * 160)) * (2 if E <= 400,000 else 8): the owner's
    formula, each step checked against 64 bits.

    Raises:
        ValueError: a negative count.
        EstimateOverflowError: more than 2**64 - 1 bytes.
    """
    if inlier_edges < 0:
        raise ValueError("the number of edges is not negative")
    per_edge = _checked(inlier_edges * _BYTES_PER_EDGE)
    factor = _FEW_EDGES_FACTOR if inlier_edges <= _FEW_EDGES else _MANY_EDGES_FACTOR
    return Estimate(memory_fixed_bytes=_checked(_checked(_BASE_BYTES + per_edge) * factor), io_slots=1)


def tracks_key(store: Store, project: Project) -> ArtefactKey:
    """Return the name of a project's tracks: of its images, its pairs and the parameters.

    Raises:
        MissingArtefactError: the pairs of an image are not (any longer) there.
    """
    images = canonical_json([[image.name, image.content] for image in images_for_pairing(project)])
    # Hashed one by one: the names of a large project's pairs would fill a planner's memory.
    geometries = hashlib.sha256()
    for pair in verifiable_pairs(store, project):
        geometries.update(bytes.fromhex(project_verification_key(project, *pair).digest))
    inputs = (hashlib.sha256(images.encode()).hexdigest(), geometries.hexdigest())
    return artefact_key(TRACKS_KIND, TRACKS_VERSION, project.parameters.tracks, inputs)


def tracks_sha256(store: Store, project: Project) -> str:
    """Return the SHA-256 of the file that holds a project's tracks.

    Raises:
        MissingArtefactError: they are not built yet.
    """
    return store.sha256(tracks_key(store, project))


def tracks_job(project: Project, inlier_edges: int) -> Job:
    """Return the job that builds a project's tracks."""
    return Job(
        kind=TRACKS_KIND,
        payload=TracksPayload(project=project.id).model_dump(mode="json"),
        project=project.id,
        stage=TRACKS_STAGE,
        item=project.id,
        estimate=tracks_estimate(inlier_edges),
    )


def run_tracks(payloads: Sequence[TracksPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish a project's tracks in canonical order, made on this thread.

    Arrays: ``offsets`` uint64 (T + 1); ``image`` and ``feature`` uint32 (O)
    and ``xy`` float32 (O, 2), full-image pixels in OpenCV's convention.
    Metadata: ``images``, the list that ``image`` indexes, sorted by name, and
    counts of what conflicts cost.
    """
    for payload in payloads:
        project = store.project(payload.project)
        try:
            estimate = tracks_estimate(inlier_edge_count(store, project))
            if grant.memory_bytes < estimate.memory_fixed_bytes:
                yield Needs(estimate=estimate)
            else:
                yield _build(project, store)
        except MissingArtefactError as error:
            yield NotReady(cause=str(error))


def _build(project: Project, store: Store) -> Done:
    key = tracks_key(store, project)
    if store.has(key):
        return Done(recorded_items=0)
    images = images_for_pairing(project)
    parameters = project.parameters.tracks
    tracks = build_tracks(
        _edges(store, project, images), conflicts=parameters.conflicts, min_length=parameters.min_length
    )
    _publish(store, project, key, images, tracks)
    return Done()


def _edges(store: Store, project: Project, images: Sequence[ProjectImage]) -> Edges:
    positions = {image.content: position for position, image in enumerate(images)}
    none = np.empty(0, np.int64)
    left, right, strength = [none], [none], [none]
    for pair in verified_pairs(store, project):
        left.append(node_numbers(positions[pair.left], pair.inliers[:, 0]))
        right.append(node_numbers(positions[pair.right], pair.inliers[:, 1]))
        strength.append(np.full(len(pair.inliers), len(pair.inliers), np.int64))
    return Edges(left=np.concatenate(left), right=np.concatenate(right), strength=np.concatenate(strength))


def _publish(
    store: Store, project: Project, key: ArtefactKey, images: Sequence[ProjectImage], tracks: TrackSet
) -> None:
    image = (tracks.nodes >> FEATURE_BITS).astype(np.uint32)
    feature = (tracks.nodes & ((1 << FEATURE_BITS) - 1)).astype(np.uint32)
    metadata: dict[str, Json] = {
        "images": [{"content": entry.content, "name": entry.name} for entry in images],
        "removed_edges": tracks.removed_edges,
        "rejected_components": tracks.rejected_components,
    }
    arrays: dict[str, NDArray[Any]] = {
        "offsets": tracks.offsets,
        "image": image,
        "feature": feature,
        "xy": _positions_px(store, project, images, image, feature),
    }
    store.publish(key, arrays, metadata)


def _positions_px(
    store: Store,
    project: Project,
    images: Sequence[ProjectImage],
    image: NDArray[np.uint32],
    feature: NDArray[np.uint32],
) -> NDArray[np.float32]:
    """Return where each observation is.

    Raises:
        MissingArtefactError: a feature set is lost; all others were read too, so
            that every damaged one is discarded now and one repair is enough.
    """
    xy = np.empty((len(image), 2), np.float32)
    lost: MissingArtefactError | None = None
    by_image = np.argsort(image, kind="stable")
    ends = np.searchsorted(image[by_image], np.arange(len(images) + 1))
    for position, entry in enumerate(images):
        seen = by_image[ends[position] : ends[position + 1]]
        if not len(seen):
            continue
        try:
            features = read_features(store, entry.content, project.parameters.features)
        except MissingArtefactError as error:
            lost = error
        else:
            xy[seen] = features.keypoints[feature[seen], :2]
    if lost is not None:
        raise lost
    return xy


def _checked(amount_bytes: int) -> int:
    if amount_bytes > UINT64_MAX:
        raise EstimateOverflowError("the tracks of so many matches exceed 64-bit memory")
    return amount_bytes


KINDS = (
    Kind(
        name=TRACKS_KIND,
        version=TRACKS_VERSION,
        stage=TRACKS_STAGE,
        estimate=tracks_estimate(0),
        forms=EstimateForms(floors=(tracks_estimate(0),)),
        payload=TracksPayload,
        run=run_tracks,
        time_limit=OF_WHOLE_PROJECTS,
    ),
)
