"""Pairs are matched in bounded windows, with the same result for any grant."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from governor.model import Grant
from tasks.kind import Done, NotReady, Outcome
from tasks.matching import KINDS, run_matching
from tasks.matching_kernel import match_descriptors
from tasks.pair_jobs import MatchPayload, matches_key, pair_item
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.store import ArtefactKey
from tests.unit.tasks.scene_store import SceneStore, build_scene

POINTS = 120


def payload_of(scene: SceneStore, pair: tuple[str, str], *, with_project: bool = True) -> MatchPayload:
    """Return the payload of a pair under the project's parameters."""
    return MatchPayload(
        left=pair[0],
        right=pair[1],
        features=scene.project.parameters.features,
        project=scene.project.id if with_project else None,
    )


def run(scene: SceneStore, payloads: Sequence[MatchPayload], threads: int = 1) -> list[Outcome]:
    """Run one batch."""
    grant = Grant(batch=len(payloads), cpu_threads=threads, memory_bytes=80 << 20, io_slots=1)
    return list(run_matching(payloads, grant, scene.store))


def stored_sha256(scene: SceneStore, payload: MatchPayload) -> str:
    """Return the checksum of a pair's published matches."""
    return scene.store.sha256(matches_key(payload.left, payload.right, payload.features, payload.matching))


@pytest.mark.parametrize("extractor", ["rootsift", "orb"])
def test_matches_are_published_sorted(tmp_path: Path, extractor: str) -> None:
    """Feature f of image 0 is feature f - 1 of image 1; all are found, in order of the left index."""
    features = FeatureParameters.model_validate({"extractor": extractor})
    scene = build_scene(tmp_path, images=2, parameters=ProjectParameters(features=features), points=POINTS)
    payload = payload_of(scene, scene.pair())

    run(scene, [payload])

    key = matches_key(payload.left, payload.right, payload.features, payload.matching)
    matches = scene.store.read(key).arrays["matches"]
    step = -1 if payload.left == scene.contents[0] else 1
    assert matches.dtype == np.uint32
    assert matches.tolist() == [[f, (f + step) % POINTS] for f in range(POINTS)]


@pytest.mark.parametrize(("with_project", "count"), [(True, 1), (False, 0)])
def test_project_pairs_lead_on_to_verification(tmp_path: Path, count: int, *, with_project: bool) -> None:
    """A pair of a project is verified next; a lone pair ends here."""
    scene = build_scene(tmp_path, images=2)

    (outcome,) = run(scene, [payload_of(scene, scene.pair(), with_project=with_project)])

    assert isinstance(outcome, Done)
    assert outcome.recorded_items == 1
    assert [job.item for job in outcome.follow_ups] == [pair_item(*scene.pair())] * count


def test_repetition_is_a_no_op_that_leads_on(tmp_path: Path) -> None:
    """A redelivered pair counts nothing and keeps its follow-up."""
    scene = build_scene(tmp_path, images=2)
    payload = payload_of(scene, scene.pair())
    (first,) = run(scene, [payload])

    (second,) = run(scene, [payload])

    assert isinstance(first, Done)
    assert second == Done(recorded_items=0, follow_ups=first.follow_ups)


def test_missing_features_are_not_ready(tmp_path: Path) -> None:
    """A pair whose features are gone leaves the queue; the rest of the batch is matched."""
    scene = build_scene(tmp_path, images=3)
    missing = payload_of(scene, (scene.pair()[0], "f" * 64))

    outcomes = run(scene, [missing, payload_of(scene, scene.pair())])

    assert isinstance(outcomes[0], NotReady)
    assert isinstance(outcomes[1], Done)


def test_damaged_features_are_discarded(tmp_path: Path) -> None:
    """What fails its checksum is removed, so that the planner has it made again."""
    scene = build_scene(tmp_path, images=2)
    scene.damage_features(scene.contents[0])

    (outcome,) = run(scene, [payload_of(scene, scene.pair())])

    assert isinstance(outcome, NotReady)
    assert "checksum" in outcome.cause
    assert not scene.has_features(scene.contents[0])


@pytest.mark.parametrize(("threads", "batch"), [(1, 6), (2, 6), (4, 3), (8, 1), (8, 6)])
def test_bytes_do_not_depend_on_the_grant(tmp_path: Path, threads: int, batch: int) -> None:
    """Threads and batches of any number publish the same files."""
    scenes = [build_scene(tmp_path / name, images=4) for name in ("plain", "granted")]
    pairs = [tuple(sorted(pair)) for pair in combinations(scenes[0].contents, 2)]
    payloads = [payload_of(scenes[0], (left, right)) for left, right in pairs]
    run(scenes[0], payloads)

    for start in range(0, len(payloads), batch):
        run(scenes[1], payloads[start : start + batch], threads)

    expected, found = ([stored_sha256(scene, payload) for payload in payloads] for scene in scenes)
    assert found == expected


@pytest.mark.parametrize(("threads", "window"), [(1, 2), (2, 4), (4, 8), (8, 8)])
def test_windows_hold_two_pairs_per_thread_and_eight_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, window: int
) -> None:
    """A window is computed whole before the first of its pairs is published."""
    scene = build_scene(tmp_path, images=6, points=10)
    pairs = list(combinations(sorted(scene.contents), 2))
    computed: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        computed.append(1)
        return match_descriptors(*args, **kwargs)

    monkeypatch.setattr("tasks.matching.match_descriptors", counting)
    grant = Grant(batch=15, cpu_threads=threads, memory_bytes=150 << 20)
    outcomes = run_matching([payload_of(scene, pair) for pair in pairs], grant, scene.store)

    next(outcomes)

    assert len(computed) == window == KINDS[0].window(grant)
    assert sum(scene.store.has(_key(scene, pair)) for pair in pairs) == 1


def _key(scene: SceneStore, pair: tuple[str, str]) -> ArtefactKey:
    payload = payload_of(scene, pair)
    return matches_key(payload.left, payload.right, payload.features, payload.matching)
