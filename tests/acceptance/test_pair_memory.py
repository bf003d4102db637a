"""The reservation covers the truth: measured peaks of the pair and track kinds stay below their charge."""

from itertools import pairwise
from pathlib import Path

import pytest

from tasks import matching, pairs, tracks, verification
from tasks.matching import run_matching
from tasks.pair_jobs import MatchPayload, VerifyPayload
from tasks.pairs import PairsPayload, pairing_of, pairs_estimate, run_pairs
from tasks.parameters import Extractor, FeatureParameters, PairParameters, ProjectParameters
from tasks.tracks import TracksPayload, tracks_estimate
from tasks.verification import inlier_edge_count, run_verification
from tests.acceptance.measured_peak import peak_bytes
from tests.unit.tasks.scene_store import GRANT, SceneStore, build_scene

MOST_FEATURES = 8192


def neighbours(scene: SceneStore, count: int) -> list[tuple[str, str]]:
    """Return the pairs of following images."""
    pairs_by_name = [(min(pair), max(pair)) for pair in pairwise(scene.contents)]
    return pairs_by_name[:count]


def match_payloads(scene: SceneStore, count: int) -> list[MatchPayload]:
    """Return matching payloads of following images."""
    features = scene.project.parameters.features
    return [
        MatchPayload(left=left, right=right, features=features, project=scene.project.id)
        for left, right in neighbours(scene, count)
    ]


def verify_payloads(scene: SceneStore, count: int) -> list[VerifyPayload]:
    """Return verification payloads of following images."""
    return [VerifyPayload(left=left, right=right) for left, right in neighbours(scene, count)]


@pytest.mark.parametrize("extractor", ["rootsift", "orb"])
@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (2, 2), (8, 8)])
def test_matching_stays_within_its_reservation(
    tmp_path: Path, extractor: Extractor, batch: int, threads: int
) -> None:
    """10 MiB per pair hold for full feature sets, all threads busy."""
    parameters = ProjectParameters(features=FeatureParameters(extractor=extractor))
    scene = build_scene(tmp_path, images=batch + 1, points=MOST_FEATURES, parameters=parameters)
    estimate = matching.KINDS[0].estimate

    peak = peak_bytes("tasks.matching", estimate, match_payloads(scene, batch), threads, tmp_path)

    assert 1 << 20 < peak <= estimate.memory_bytes(batch)


@pytest.mark.parametrize("batch", [1, 8])
def test_verification_stays_within_its_reservation(tmp_path: Path, batch: int) -> None:
    """Every feature of both images matched is the largest pair there is."""
    scene = build_scene(tmp_path, images=batch + 1, points=MOST_FEATURES)
    list(run_matching(match_payloads(scene, batch), GRANT, scene.store))
    estimate = verification.KINDS[0].estimate

    peak = peak_bytes("tasks.verification", estimate, verify_payloads(scene, batch), 1, tmp_path)

    assert 1 << 20 < peak <= estimate.memory_bytes(batch)


@pytest.mark.parametrize("batch", [1, 64])
def test_pairing_stays_within_its_reservation(tmp_path: Path, batch: int) -> None:
    """Three hundred images paired exhaustively, each with all its jobs."""
    parameters = ProjectParameters(pairs=PairParameters(strategy="exhaustive"))
    scene = build_scene(tmp_path, images=batch, parameters=parameters, with_features=False)
    for number in range(300 - batch):
        scene.project.register(f"{number:04}.jpg", f"{number:064x}")
    estimate = pairs.KINDS[0].estimate
    payloads = [PairsPayload(project=scene.project.id, image=f"{number:064x}") for number in range(batch)]

    peak = peak_bytes("tasks.pairs", estimate, payloads, 1, tmp_path)

    assert peak <= estimate.memory_bytes(batch)


@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (26, 12)])
def test_pairing_two_thousand_images_stays_within_its_reservation(
    tmp_path: Path, batch: int, threads: int
) -> None:
    """The images that lead to most jobs: nearly as many as there are images, each on its way to the queue."""
    parameters = ProjectParameters(pairs=PairParameters(strategy="exhaustive"))
    scene = build_scene(tmp_path, images=1, parameters=parameters, with_features=False)
    for number in range(1999):
        scene.project.register(f"{number:04}.jpg", f"{number:064x}")
    estimate = pairs_estimate(pairing_of(scene.project))
    payloads = [PairsPayload(project=scene.project.id, image=f"{number:064x}") for number in range(batch)]

    peak = peak_bytes("tasks.pairs", estimate, payloads, threads, tmp_path)

    assert 12 << 20 < peak <= estimate.memory_bytes(batch)


@pytest.mark.parametrize("images", [2, 8])
def test_track_building_stays_within_its_reservation(tmp_path: Path, images: int) -> None:
    """From some thousand matches on to some ten thousand, by the formula."""
    scene = build_scene(tmp_path, images=images, points=MOST_FEATURES)
    sources = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents]
    jobs = [
        job
        for outcome in run_pairs(sources, GRANT, scene.store)
        for job in getattr(outcome, "follow_ups", ())
    ]
    list(run_matching([MatchPayload.model_validate(job.payload) for job in jobs], GRANT, scene.store))
    pairs_left_right = [{"left": job.payload["left"], "right": job.payload["right"]} for job in jobs]
    list(run_verification([VerifyPayload(**pair) for pair in pairs_left_right], GRANT, scene.store))
    estimate = tracks_estimate(inlier_edge_count(scene.store, scene.project))

    peak = peak_bytes("tasks.tracks", estimate, [TracksPayload(project=scene.project.id)], 1, tmp_path)

    assert tracks.KINDS[0].estimate.memory_bytes(1) < estimate.memory_bytes(1)
    assert 1 << 20 < peak <= estimate.memory_bytes(1)
