"""Reads what a project has come to, from its store alone and without changing it.

What is damaged counts as not there: whoever resumes the project makes it
again. Does not cover what only the queue knows (batches, retries, durations).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tasks.errors import CorruptArtefactError, MissingArtefactError
from tasks.feature_sets import features_key
from tasks.pair_jobs import pair_item, project_verification_key
from tasks.pairing import images_for_pairing, pairing_of
from tasks.proposals import PAIRS_STAGE, PARTNERS_ARRAY, Proposals
from tasks.reconstruction import model_report
from tasks.store import ArtefactKey, Project, Store
from tasks.tracks import tracks_key

Value = TypeVar("Value")


def summarise(store: Store, project: Project) -> dict[str, Any]:
    """Return counts and results of a project, finished or not, ready for JSON.

    Raises:
        StoreError: the store cannot be read; damage in it is no error.
    """
    store = store.keeping_damage()
    failures = project.failures()
    # A photo that is lost fails twice: at import, and where its features are needed.
    photos_failed = {failure.name for stage, _, failure in failures if stage in {"import", "features"}}
    return {
        "project": project.id,
        "images": {"imported": len(project.images()), "failed": len(photos_failed)},
        "features": _feature_count(store, project),
        **_pair_counts(store, project),
        **_track_counts(store, project),
        **_models(store, project),
        "failures": [failure.to_dict() for failure in dict.fromkeys(failure for *_, failure in failures)],
    }


def _feature_count(store: Store, project: Project) -> int:
    parameters = project.parameters.features
    keys = (features_key(image.content, parameters) for image in project.images())
    return sum(_rows(store, key, "keypoints") for key in keys)


def _pair_counts(store: Store, project: Project) -> dict[str, int]:
    pairing = pairing_of(project)
    failed = {item for stage, item, _ in project.failures() if stage in {"match", "verify"}}
    proposals = Proposals(store, pairing, project.failed_items(PAIRS_STAGE))
    pairs = [
        pair
        for content in (image.content for image in pairing.images)
        if _rows(store, pairing.key(content), PARTNERS_ARRAY) > 0
        for pair in _unless_damaged(partial(proposals.owned_pairs, content)) or ()
    ]
    verified = sum(
        _rows(store, project_verification_key(project, *pair), "inliers") > 0
        for pair in pairs
        if pair_item(*pair) not in failed
    )
    return {"pairs": len(pairs), "verified_pairs": verified}


def _track_counts(store: Store, project: Project) -> dict[str, Any]:
    key = _unless_damaged(lambda: tracks_key(store, project))
    if key is None or not store.is_intact(key):
        return {"tracks": 0, "observations": 0, "tracks_sha256": None}
    return {
        "tracks": max(0, _rows(store, key, "offsets") - 1),
        "observations": _rows(store, key, "image"),
        "tracks_sha256": _unless_damaged(lambda: store.sha256(key)),
    }


def _models(store: Store, project: Project) -> dict[str, Any]:
    report = _unless_damaged(lambda: model_report(store, project))
    if report is None:
        return {"models": [], "model_reason": _reason_before_the_model(project)}
    return {
        "models": [model.model_dump(mode="json") for model in report.models],
        "model_reason": report.reason,
    }


def _reason_before_the_model(project: Project) -> str | None:
    """Say why there will be no model; None where there may be one yet."""
    failed = {stage: failure for stage, _, failure in project.failures() if stage in {"tracks", "model"}}
    if failed:
        return next(iter(failed.values())).cause
    tried = project.failed_items("import") | project.registrations().keys()
    if project.sources and not images_for_pairing(project) and all(s.name in tried for s in project.sources):
        return f"None of the {len(project.sources)} photos could be used."
    return None


def _rows(store: Store, key: ArtefactKey, array: str) -> int:
    """Return the length of an artefact's array; 0 where it is missing or damaged."""
    shapes = _unless_damaged(lambda: store.shapes(key)) or {}
    return shapes.get(array, (0,))[0]


def _unless_damaged(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except (MissingArtefactError, CorruptArtefactError):
        return None
