"""Every pair gets a published answer, accepted or not, the same one each time."""

from pathlib import Path

import numpy as np
import pytest

from tasks.kind import Done, NotReady, Outcome
from tasks.matching import run_matching
from tasks.pair_jobs import MatchPayload, VerifyPayload, matches_key, project_verification_key
from tasks.pairs import PairsPayload, run_pairs
from tasks.two_view import TwoViewConfig
from tasks.verification import inlier_edge_count, run_verification, verified_pairs
from tests.unit.tasks.scene_store import GRANT, SceneStore, build_scene


def verify(scene: SceneStore, pair: tuple[str, str]) -> Outcome:
    """Run the kind for one pair."""
    payload = VerifyPayload(left=pair[0], right=pair[1], project=scene.project.id)
    (outcome,) = run_verification([payload], GRANT, scene.store)
    return outcome


def match(scene: SceneStore, pair: tuple[str, str]) -> None:
    """Match one pair first."""
    list(run_matching([MatchPayload(left=pair[0], right=pair[1])], GRANT, scene.store))


def matched_scene(root: Path, points: int = 120) -> SceneStore:
    """Build two images and their matches."""
    scene = build_scene(root, images=2, points=points)
    match(scene, scene.pair())
    return scene


def test_inliers_and_matrices_are_published(tmp_path: Path) -> None:
    """A clean pair keeps its matches, with the matrices and COLMAP's number of its type."""
    scene = matched_scene(tmp_path)

    outcome = verify(scene, scene.pair())

    artefact = scene.store.read(project_verification_key(scene.project, *scene.pair()))
    assert outcome == Done(counts={"inliers": len(artefact.arrays["inliers"])})
    assert len(artefact.arrays["inliers"]) >= 115
    assert artefact.arrays["inliers"].dtype == np.uint32
    assert {artefact.arrays[name].shape for name in ("F", "E")} == {(3, 3)}
    assert artefact.metadata["config"] == 2
    assert artefact.metadata["matches"] == 120


@pytest.mark.parametrize(("points", "rows"), [(14, 0), (15, 15)])
def test_refused_pairs_are_recorded_without_rows(tmp_path: Path, points: int, rows: int) -> None:
    """One match too few is an answer too: the pair counts as done."""
    scene = matched_scene(tmp_path, points)

    outcome = verify(scene, scene.pair())

    artefact = scene.store.read(project_verification_key(scene.project, *scene.pair()))
    assert outcome == Done(counts={"inliers": rows})
    assert artefact.arrays["inliers"].shape == (rows, 2)
    assert (artefact.metadata["config"] == TwoViewConfig.DEGENERATE) is (rows == 0)


def test_repetition_is_a_no_op(tmp_path: Path) -> None:
    """A redelivered pair counts nothing."""
    scene = matched_scene(tmp_path)
    verify(scene, scene.pair())

    assert verify(scene, scene.pair()) == Done(recorded_items=0)


def test_geometry_made_again_has_the_same_bytes(tmp_path: Path) -> None:
    """The seed comes from the pair, so a discarded geometry comes back as it was."""
    scene = matched_scene(tmp_path)
    key = project_verification_key(scene.project, *scene.pair())
    verify(scene, scene.pair())
    before = scene.store.sha256(key)
    scene.store.discard(key)

    verify(scene, scene.pair())

    assert scene.store.sha256(key) == before


def test_missing_matches_are_not_ready(tmp_path: Path) -> None:
    """A pair that was never matched, or whose matches are gone, is planned anew."""
    scene = build_scene(tmp_path, images=2)

    assert isinstance(verify(scene, scene.pair()), NotReady)


def test_damaged_matches_are_discarded(tmp_path: Path) -> None:
    """What fails its checksum is removed, so that the planner has it made again."""
    scene = matched_scene(tmp_path)
    payload = MatchPayload(left=scene.pair()[0], right=scene.pair()[1])
    key = matches_key(payload.left, payload.right, payload.features, payload.matching)
    scene.damage(key)

    outcome = verify(scene, scene.pair())

    assert isinstance(outcome, NotReady)
    assert not scene.store.has(key)


def test_damaged_features_are_discarded(tmp_path: Path) -> None:
    """The keypoints are an input as well."""
    scene = matched_scene(tmp_path)
    scene.damage_features(scene.contents[1])

    assert isinstance(verify(scene, scene.pair()), NotReady)
    assert not scene.has_features(scene.contents[1])


def test_edges_are_the_inliers_of_all_pairs(tmp_path: Path) -> None:
    """The count that the track estimate needs agrees with the pairs read one by one."""
    scene = build_scene(tmp_path, images=3)
    payloads = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents]
    list(run_pairs(payloads, GRANT, scene.store))
    for pair in (scene.pair(0, 1), scene.pair(0, 2), scene.pair(1, 2)):
        match(scene, pair)
        verify(scene, pair)

    pairs = list(verified_pairs(scene.store, scene.project))

    assert [(pair.left, pair.right) for pair in pairs] == sorted(
        (scene.pair(0, 1), scene.pair(0, 2), scene.pair(1, 2))
    )
    assert inlier_edge_count(scene.store, scene.project) == sum(len(pair.inliers) for pair in pairs) > 300
