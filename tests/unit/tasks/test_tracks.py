"""A project's tracks follow from its verified pairs, and their memory from the number of matches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from governor.model import UINT64_MAX
from tasks.errors import Failure, Reason
from tasks.feature_sets import features_key, read_feature_set
from tasks.kind import Done, NotReady, Outcome
from tasks.matching import run_matching
from tasks.pair_jobs import MatchPayload, VerifyPayload, pair_item, project_verification_key
from tasks.pairs import PairsPayload, candidate_pairs, run_pairs
from tasks.store import Artefact
from tasks.tracks import (
    EstimateOverflowError,
    TracksPayload,
    run_tracks,
    tracks_estimate,
    tracks_job,
    tracks_key,
    tracks_sha256,
)
from tasks.verification import run_verification
from tests.unit.tasks.scene_store import GRANT, SceneStore, build_scene


def verified_scene(root: Path, images: int = 4) -> SceneStore:
    """Build a project up to its verified pairs."""
    scene = build_scene(root, images=images, points=60)
    sources = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents]
    list(run_pairs(sources, GRANT, scene.store))
    pairs: list[dict[str, Any]] = [
        {"left": left, "right": right} for left, right in candidate_pairs(scene.store, scene.project)
    ]
    list(run_matching([MatchPayload(**pair) for pair in pairs], GRANT, scene.store))
    list(run_verification([VerifyPayload(**pair) for pair in pairs], GRANT, scene.store))
    return scene


def build(scene: SceneStore) -> Outcome:
    """Run the kind."""
    (outcome,) = run_tracks([TracksPayload(project=scene.project.id)], GRANT, scene.store)
    return outcome


def built(scene: SceneStore) -> Artefact:
    """Return the published tracks."""
    return scene.store.read(tracks_key(scene.store, scene.project))


def test_each_point_becomes_one_track(tmp_path: Path) -> None:
    """Sixty points that four cameras see are sixty tracks of four observations."""
    scene = verified_scene(tmp_path)

    outcome = build(scene)

    arrays = built(scene).arrays
    assert outcome == Done()
    assert arrays["offsets"].tolist() == list(range(0, 241, 4))
    assert arrays["image"].tolist() == [0, 1, 2, 3] * 60
    assert ((arrays["feature"] + arrays["image"]).reshape(60, 4) % 60 == np.arange(60)[:, None]).all()


def test_observations_carry_their_pixels(tmp_path: Path) -> None:
    """Xy of an observation is its keypoint's position; the images are listed by name."""
    scene = verified_scene(tmp_path)
    build(scene)

    tracks = built(scene)

    assert [image["content"] for image in tracks.metadata["images"]] == list(scene.contents)
    for image, content in enumerate(scene.contents):
        key = features_key(content, scene.project.parameters.features)
        keypoints = read_feature_set(scene.store, key).keypoints
        seen = tracks.arrays["image"] == image
        assert (tracks.arrays["xy"][seen] == keypoints[tracks.arrays["feature"][seen], :2]).all()


def test_types_are_as_documented(tmp_path: Path) -> None:
    """Readers of the file rely on these."""
    scene = verified_scene(tmp_path, images=2)
    build(scene)

    types = {name: str(array.dtype) for name, array in built(scene).arrays.items()}

    assert types == {"offsets": "uint64", "image": "uint32", "feature": "uint32", "xy": "float32"}


def test_repetition_is_a_no_op(tmp_path: Path) -> None:
    """A redelivered message counts nothing and changes nothing."""
    scene = verified_scene(tmp_path, images=2)
    build(scene)
    before = tracks_sha256(scene.store, scene.project)

    assert build(scene) == Done(recorded_items=0)
    assert tracks_sha256(scene.store, scene.project) == before


def test_missing_pair_is_not_ready(tmp_path: Path) -> None:
    """Tracks are never made of a part of the pairs by accident."""
    scene = verified_scene(tmp_path, images=3)
    scene.store.discard(project_verification_key(scene.project, *scene.pair()))

    assert isinstance(build(scene), NotReady)


def test_failed_pair_is_left_out_and_named(tmp_path: Path) -> None:
    """A quarantined pair does not hold the project up, and the tracks without it have another name."""
    scene = verified_scene(tmp_path, images=3)
    whole = tracks_key(scene.store, scene.project)
    scene.store.discard(project_verification_key(scene.project, *scene.pair()))
    failure = Failure(name="a pair", reason=Reason.WORKER_LOST, cause="lost", cure="retry")
    scene.project.record_failure("verify", pair_item(*scene.pair()), failure)

    assert build(scene) == Done()
    assert tracks_key(scene.store, scene.project) != whole


def test_project_without_matches_has_no_tracks(tmp_path: Path) -> None:
    """One image, no pair: an empty set of tracks, not an error."""
    scene = verified_scene(tmp_path, images=1)

    assert build(scene) == Done()
    assert built(scene).arrays["offsets"].tolist() == [0]
    assert built(scene).arrays["xy"].shape == (0, 2)


@pytest.mark.parametrize(
    ("edges", "memory_bytes"),
    [(0, 8_388_608), (400_000, 302_788_608), (400_001, 1_211_157_376), (1_000_000, 2_977_554_432)],
)
def test_estimate_follows_the_frozen_formula(edges: int, memory_bytes: int) -> None:
    """The owner's golden values, on both sides of the step."""
    estimate = tracks_estimate(edges)

    assert estimate.memory_bytes(1) == memory_bytes
    assert estimate.is_valid()
    assert (estimate.min_batch, estimate.max_batch, estimate.cpu_threads) == (1, 1, 1)


MOST_EDGES = (UINT64_MAX // 8 - (4 << 20)) // 368


def test_estimate_reaches_to_64_bits() -> None:
    """The largest number of edges whose bytes fit is accepted, one more is refused."""
    assert tracks_estimate(MOST_EDGES).is_valid()
    with pytest.raises(EstimateOverflowError):
        tracks_estimate(MOST_EDGES + 1)


@pytest.mark.parametrize("edges", [2**64, -1])
def test_impossible_edge_counts_are_refused(edges: int) -> None:
    """Neither the product nor a negative count slips through."""
    with pytest.raises((EstimateOverflowError, ValueError)):
        tracks_estimate(edges)


def test_job_carries_its_estimate(tmp_path: Path) -> None:
    """Every track job says what it needs: the default holds for no matches only."""
    scene = build_scene(tmp_path, images=1)

    job = tracks_job(scene.project, 1000)

    assert job.estimate == tracks_estimate(1000)
    assert job.item == scene.project.id
