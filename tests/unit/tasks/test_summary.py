"""What a project has come to is read from its store alone, at any point of its way."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.errors import Failure, Reason
from tasks.expand import Phase
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set
from tasks.kind import Failed, Job, Outcome
from tasks.summary import summarise
from tests.unit.tasks.pipeline_queue import PipelineQueue, content_of, new_queue

NOTHING: dict[str, Any] = {
    "project": "tiny",
    "images": {"imported": 0, "failed": 0},
    "features": 0,
    "pairs": 0,
    "verified_pairs": 0,
    "tracks": 0,
    "observations": 0,
    "tracks_sha256": None,
    "models": [],
    "model_reason": None,
    "failures": [],
}


def summary_of(queue: PipelineQueue) -> dict[str, Any]:
    """Summarise a project."""
    return summarise(queue.store, queue.project)


@pytest.fixture
def queue(tmp_path: Path) -> PipelineQueue:
    """Return a project of three photos that nothing was done for."""
    return new_queue(tmp_path)


def test_a_project_that_has_not_begun_has_come_to_nothing(queue: PipelineQueue) -> None:
    """Every number is there, and is zero."""
    assert summary_of(queue) == NOTHING


@pytest.mark.parametrize(
    ("until", "imported", "pairs"),
    [("import", 3, 0), ("features", 3, 0), ("matching", 3, 3), ("tracks", 3, 3)],
)
def test_a_project_is_summarised_as_far_as_it_is(
    queue: PipelineQueue, until: Phase, imported: int, pairs: int
) -> None:
    """`tiepoint status` asks in the middle of a run."""
    queue.start(until)
    queue.run_to_the_end()
    summary = summary_of(queue)

    assert (summary["images"]["imported"], summary["pairs"]) == (imported, pairs)
    assert (summary["tracks_sha256"] is not None) == (until == "tracks")


def test_failed_photos_are_counted_and_named(tmp_path: Path) -> None:
    """One fails at import, one in feature extraction; a failed pair is no failed photo."""
    queue = new_queue(tmp_path, images=5)
    failing = {"import": 1, "features": 1, "match": 1}

    def fail_first(job: Job) -> Outcome:
        if failing[job.stage] == 0:
            return queue.do(job)
        failing[job.stage] -= 1
        failure = Failure(name=job.stage, reason=Reason.UNREADABLE, cause="told to", cure="none")
        return Failed(failure=failure)

    queue.instead = dict.fromkeys(failing, fail_first)
    queue.start("matching")
    queue.run_to_the_end()
    summary = summary_of(queue)

    assert summary["images"] == {"imported": 4, "failed": 2}
    assert sorted(failure["name"] for failure in summary["failures"]) == ["features", "import", "match"]
    assert summary["pairs"] == 3


def snapshot(queue: PipelineQueue) -> dict[str, bytes]:
    """Return every file of the store."""
    root = queue.store.root
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("content", [b"", b"{", b"?" * 400])
@pytest.mark.parametrize(
    "pattern",
    [
        "artefacts/features*/*/*.safetensors",
        "artefacts/candidate*/*/*.safetensors",
        "artefacts/geometric*/*/*.safetensors",
        "artefacts/track*/*/*.safetensors",
        "artefacts/*/*/*.sha256",
        "artefacts/model*/*/*/*",
        "photos/*/*",
        "projects/*/registrations/*",
        "projects/*/registrations.json",
        "projects/*/failures/*",
    ],
)
def test_looking_at_a_damaged_store_changes_nothing(
    queue: PipelineQueue, pattern: str, content: bytes
) -> None:
    """Whatever is damaged, `tiepoint status` tells the rest and discards nothing."""
    queue.start()
    queue.run_to_the_end()
    failure = Failure(name="x", reason=Reason.UNREADABLE, cause="told to", cure="none")
    queue.project.record_failure("export", "x", failure)
    damaged = [path for path in queue.store.root.glob(pattern) if path.is_file()]
    for path in damaged:
        path.write_bytes(content)
    before = snapshot(queue)
    summary = summary_of(queue)

    assert damaged
    assert set(summary) == set(NOTHING)
    assert snapshot(queue) == before


def test_features_are_counted_without_those_that_are_torn(queue: PipelineQueue) -> None:
    """Three sets, one of them cut off."""
    queue.start("import")
    queue.run_to_the_end()
    for number, image in enumerate(queue.project.images(), start=1):
        features = FeatureSet(
            extractor="rootsift",
            width_px=64,
            height_px=64,
            keypoints=np.ones((number, 4), np.float32),
            descriptors=np.ones((number, 128), np.uint8),
        )
        key = features_key(image.content, queue.project.parameters.features)
        publish_feature_set(queue.store, key, features)
    (torn,) = queue.store.root.rglob(f"{key.digest}.safetensors")
    torn.write_bytes(torn.read_bytes()[:-1])

    assert summary_of(queue)["features"] == 1 + 2


@pytest.mark.parametrize("stage", ["import", "features"])
def test_a_project_none_of_whose_photos_can_be_used_says_so(queue: PipelineQueue, stage: str) -> None:
    """It has failures, no model, and a reason in words."""
    failure = Failure(name="x", reason=Reason.UNREADABLE, cause="told to", cure="none")
    queue.instead[stage] = lambda _job: Failed(failure=failure)
    queue.start()
    queue.run_to_the_end()
    summary = summary_of(queue)

    assert queue.is_done
    assert summary["failures"]
    assert (summary["models"], summary["model_reason"]) == ([], "None of the 3 photos could be used.")


def test_a_lost_photo_is_one_failure(queue: PipelineQueue) -> None:
    """Though import and features both lack it."""
    failure = Failure(name="001.jpg", reason=Reason.LOST, cause="told to", cure="none")
    queue.project.record_failure("import", "001.jpg", failure)
    queue.project.record_failure("features", content_of("001.jpg"), failure)
    summary = summary_of(queue)

    assert summary["images"]["failed"] == 1
    assert len(summary["failures"]) == 1
