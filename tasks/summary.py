"""Reads what a project has come to, from its store alone.

Does not cover what only the queue knows (batches, retries, durations).
"""

from contextlib import suppress
from typing import Any

from tasks.errors import MissingArtefactError
from tasks.feature_sets import features_key
from tasks.inputs import read_features
from tasks.pairs import candidate_pairs
from tasks.reconstruction import model_report
from tasks.store import Project, Store
from tasks.tracks import tracks_key
from tasks.verification import verified_pairs


def summarise(store: Store, project: Project) -> dict[str, Any]:
    """Return counts and results of a project, finished or not, ready for JSON."""
    failures = project.failures()
    return {
        "project": project.id,
        "images": {
            "imported": len(project.images()),
            "failed": sum(stage in {"import", "features"} for stage, _, _ in failures),
        },
        "features": _feature_count(store, project),
        **_pair_counts(store, project),
        **_track_counts(store, project),
        **_models(store, project),
        "failures": [failure.to_dict() for _, _, failure in failures],
    }


def _feature_count(store: Store, project: Project) -> int:
    parameters = project.parameters.features
    contents = [image.content for image in project.images()]
    return sum(
        len(read_features(store, content, parameters).keypoints)
        for content in contents
        if store.has(features_key(content, parameters))
    )


def _pair_counts(store: Store, project: Project) -> dict[str, int]:
    counts = {"pairs": 0, "verified_pairs": 0}
    with suppress(MissingArtefactError):  # Not that far yet.
        counts["pairs"] = len(candidate_pairs(store, project))
        counts["verified_pairs"] = sum(len(pair.inliers) > 0 for pair in verified_pairs(store, project))
    return counts


def _track_counts(store: Store, project: Project) -> dict[str, Any]:
    try:
        key = tracks_key(store, project)
        tracks = store.read(key).arrays
    except MissingArtefactError:
        return {"tracks": 0, "observations": 0, "tracks_sha256": None}
    return {
        "tracks": len(tracks["offsets"]) - 1,
        "observations": len(tracks["image"]),
        "tracks_sha256": store.sha256(key),
    }


def _models(store: Store, project: Project) -> dict[str, Any]:
    try:
        report = model_report(store, project)
    except MissingArtefactError:
        return {"models": [], "model_reason": None}
    return {
        "models": [model.model_dump(mode="json") for model in report.models],
        "model_reason": report.reason,
    }
