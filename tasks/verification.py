"""Holds the kind ``geometric_verifier.run``: which matches of a pair agree with one geometry.

The geometry itself is decided in :mod:`tasks.two_view`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from governor.model import Estimate, Grant
from tasks.errors import MissingArtefactError
from tasks.estimate_forms import EstimateForms
from tasks.inputs import read_features, read_input, read_photo_record
from tasks.kind import Done, Kind, NotReady, Outcome
from tasks.old_estimates import OLD_ESTIMATES
from tasks.pair_jobs import (
    MATCH_STAGE,
    VERIFY_KIND,
    VERIFY_STAGE,
    VERIFY_VERSION,
    VerifyPayload,
    matches_key,
    pair_item,
    project_verification_key,
    verification_key,
)
from tasks.pairs import candidate_pairs
from tasks.parameters import FeatureParameters, VerificationParameters
from tasks.participants import single_threaded_libraries
from tasks.store import ArtefactKey, Json, Project, Store
from tasks.two_view import TwoViewConfig, TwoViewGeometry, View, estimate_two_view


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPair:
    """The published two-view geometry of a pair.

    ``inliers`` uint32 (K, 2), sorted feature indices; no rows where the pair
    was refused. Matrices float64 (3, 3) or None, left to right, in OpenCV's
    pixel convention (see :class:`tasks.two_view.TwoViewGeometry`).
    """

    left: str
    right: str
    config: TwoViewConfig
    inliers: NDArray[np.uint32]
    fundamental: NDArray[np.float64] | None
    essential: NDArray[np.float64] | None
    homography: NDArray[np.float64] | None


def verifiable_pairs(store: Store, project: Project) -> Iterator[tuple[str, str]]:
    """Return the project's candidate pairs that have not failed for good, sorted; read on the first one.

    Raises:
        MissingArtefactError: pairs of an image are not (any longer) there.
    """
    failed = project.failed_items(MATCH_STAGE) | project.failed_items(VERIFY_STAGE)
    return (pair for pair in candidate_pairs(store, project) if pair_item(*pair) not in failed)


def verified_pairs(store: Store, project: Project) -> Iterator[VerifiedPair]:
    """Read the two-view geometry of every verifiable pair, refused ones included, in order.

    Raises:
        MissingArtefactError: one is not there yet, or was damaged and is discarded now.
    """
    for left, right in verifiable_pairs(store, project):
        yield _read_verified(store, project_verification_key(project, left, right))


def inlier_edge_count(store: Store, project: Project) -> int:
    """Return the number of inlier matches of all verified pairs: the E of the track estimate.

    Raises:
        MissingArtefactError: as :func:`verified_pairs`; all others were read too,
            so that every damaged one is discarded now and one repair is enough.
    """
    count = 0
    lost: MissingArtefactError | None = None
    for left, right in verifiable_pairs(store, project):
        try:
            count += len(_read_verified(store, project_verification_key(project, left, right)).inliers)
        except MissingArtefactError as error:
            lost = error
    if lost is not None:
        raise lost
    return count


INLIERS = "inliers"
"""Field of a project's live state: how many matches its verified pairs have kept, those of this run."""


def run_verification(payloads: Sequence[VerifyPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish each pair's two-view geometry, refused pairs too: else they would be tried for ever.

    Arrays: ``inliers`` uint32 (K, 2) and float64 (3, 3) ``F``, ``E``, ``H``
    of accepted pairs, where found; metadata: ``config`` in COLMAP's numbers, ``matches``, and
    ``inliers`` (of the best model, before any refusal). One thread.
    """
    _ = grant
    for payload in payloads:
        yield _verify(payload, store)


def _verify(payload: VerifyPayload, store: Store) -> Outcome:
    key = _key(payload)
    if store.has(key):
        return Done(recorded_items=0)
    try:
        matches = read_input(
            store, matches_key(payload.left, payload.right, payload.features, payload.matching)
        ).arrays["matches"]
        left = _matched_points(store, payload.left, payload.features, matches[:, 0])
        right = _matched_points(store, payload.right, payload.features, matches[:, 1])
        views = (_view(store, payload.left), _view(store, payload.right))
    except MissingArtefactError as error:
        return NotReady(cause=str(error))
    with single_threaded_libraries():
        geometry = estimate_two_view(left, right, views, payload.verification, _seed(payload))
    _publish(key, payload, matches, geometry, store)
    kept = int(geometry.inliers.sum()) if geometry.is_accepted else 0
    return Done(counts={INLIERS: kept})


def _matched_points(
    store: Store, content: str, features: FeatureParameters, indices: NDArray[np.uint32]
) -> NDArray[np.float64]:
    keypoints = read_features(store, content, features).keypoints
    return np.ascontiguousarray(keypoints[indices, :2], np.float64)


def _view(store: Store, content: str) -> View:
    record = read_photo_record(store, content)
    return View(
        width_px=record.width_px,
        height_px=record.height_px,
        prior_focal_length_px=record.focal_length_px if record.focal_is_prior else None,
    )


def _seed(payload: VerifyPayload) -> int:
    """Return a seed that the pair's photos decide, so that a repetition repeats the result."""
    digest = hashlib.sha256(pair_item(payload.left, payload.right).encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _publish(
    key: ArtefactKey,
    payload: VerifyPayload,
    matches: NDArray[np.uint32],
    geometry: TwoViewGeometry,
    store: Store,
) -> None:
    matrices = {"F": geometry.fundamental, "E": geometry.essential, "H": geometry.homography}
    arrays: dict[str, NDArray[Any]] = {
        name: matrix for name, matrix in matrices.items() if matrix is not None
    }
    arrays["inliers"] = matches[geometry.inliers] if geometry.is_accepted else matches[:0]
    metadata: dict[str, Json] = {
        "left": payload.left,
        "right": payload.right,
        "config": int(geometry.config),
        "matches": len(matches),
        "inliers": int(geometry.inliers.sum()),
    }
    store.publish(key, arrays, metadata)


def _read_verified(store: Store, key: ArtefactKey) -> VerifiedPair:
    artefact = read_input(store, key)
    return VerifiedPair(
        left=artefact.metadata["left"],
        right=artefact.metadata["right"],
        config=TwoViewConfig(artefact.metadata["config"]),
        inliers=artefact.arrays["inliers"],
        fundamental=artefact.arrays.get("F"),
        essential=artefact.arrays.get("E"),
        homography=artefact.arrays.get("H"),
    )


def _key(payload: VerifyPayload) -> ArtefactKey:
    return verification_key(
        payload.left, payload.right, payload.features, payload.matching, payload.verification
    )


def _warm_up() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.uniform(0, 100, (2, 32, 2))
    view = View(width_px=100, height_px=100, prior_focal_length_px=100.0)
    estimate_two_view(left, right, (view, view), VerificationParameters(max_iterations=100), seed=0)


KINDS = (
    Kind(
        name=VERIFY_KIND,
        version=VERIFY_VERSION,
        stage=VERIFY_STAGE,
        # Two feature files at a time (1.2 MiB each) and OpenCV's estimators (measured).
        estimate=Estimate(
            memory_fixed_bytes=16 << 20, memory_per_item_bytes=1 << 20, max_batch=8, io_slots=1
        ),
        forms=EstimateForms(old=OLD_ESTIMATES[VERIFY_KIND]),
        payload=VerifyPayload,
        run=run_verification,
        warm_up=_warm_up,
    ),
)
