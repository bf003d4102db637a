"""Retrieval finds the pairs that count in real photos, and stays within its reservations."""

import csv
from pathlib import Path

import pytest
from rich.console import Console

from governor.model import Estimate
from tasks import visual_index
from tasks.pairing import pairing_of
from tasks.pairs import PairsPayload, pairs_estimate
from tasks.parameters import Extractor, FeatureParameters, PairParameters, ProjectParameters
from tasks.proposals import candidate_pairs
from tasks.store import Store
from tasks.visual_index import IndexPayload
from tests.acceptance.measured_peak import peak_bytes
from tests.bench.retrieval_recall import index_all, proposed_pairs, strong_pairs
from tests.bench.retrieval_scale import ROW_PROJECT, build_row, index_sets
from tests.conftest import PhotoSet
from tests.plain_runner import run_plain
from tests.unit.tasks.scene_store import build_scene
from worker.local_project import new_project, run_and_summarise
from worker.local_run import LocalOptions

INDEX_ESTIMATE = visual_index.KINDS[0].estimate
ROW_IMAGES = 320


@pytest.mark.parametrize("extractor", ["rootsift", "orb"])
@pytest.mark.parametrize(
    ("photo_set", "top", "least_ratio"), [("mixed_et_kermit", 10, 0.93), ("brighton_beach", 10, 0.75)]
)
def test_most_verified_pairs_are_proposed(
    photos: PhotoSet, tmp_path: Path, extractor: Extractor, photo_set: str, top: int, least_ratio: float
) -> None:
    """Half of the others asked for (all of them would prove nothing); top 20 holds every pair."""
    parameters = ProjectParameters(
        features=FeatureParameters(extractor=extractor, max_image_size_px=800, max_features=3000),
        pairs=PairParameters(strategy="exhaustive"),
    )
    made = run_plain(photos(photo_set), tmp_path, parameters)
    index_all(made.store, made.project)
    wanted = strong_pairs(made.store, made.project)

    assert len(wanted) >= 25
    assert len(wanted & proposed_pairs(made.store, made.project, top)) >= least_ratio * len(wanted)
    assert wanted <= proposed_pairs(made.store, made.project, 20)


def test_two_scenes_are_told_apart(photos: PhotoSet, tmp_path: Path) -> None:
    """Of the images most alike nearly all are of the same scene; by chance it would be half."""
    folder = photos("mixed_et_kermit")
    with (folder.parent / "labels.csv").open(encoding="utf-8", newline="") as file:
        scene_of = {row["image"]: row["scene"] for row in csv.DictReader(file)}
    parameters = ProjectParameters(pairs=PairParameters(strategy="retrieval", top_k=3))
    made = run_plain(folder, tmp_path, parameters)
    scene = {image.content: scene_of[image.name] for image in pairing_of(made.project).images}
    pairs = list(candidate_pairs(made.store, made.project))

    assert sum(scene[left] == scene[right] for left, right in pairs) >= 0.85 * len(pairs)


@pytest.mark.parametrize(("threads", "max_batch"), [(1, 1), (4, 7)])
def test_retrieved_tracks_do_not_depend_on_the_grant(
    photos: PhotoSet, tmp_path: Path, threads: int, max_batch: int
) -> None:
    """Segments of one image or of seven, windows of two or of eight: the same bytes."""
    parameters = ProjectParameters(pairs=PairParameters(strategy="retrieval", top_k=4))
    usual = run_plain(photos("kermit"), tmp_path / "usual", parameters, threads=2)
    other = run_plain(photos("kermit"), tmp_path / "other", parameters, threads=threads, max_batch=max_batch)

    assert other.tracks_sha256 == usual.tracks_sha256
    assert 20 <= len(usual.pairs) < 55


@pytest.mark.parametrize("extractor", ["rootsift", "orb"])
@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (16, 1), (16, 12)])
def test_indexing_stays_within_its_reservation(
    tmp_path: Path, extractor: Extractor, batch: int, threads: int
) -> None:
    """Full feature sets, a batch of one and the largest, all threads busy."""
    features = FeatureParameters(extractor=extractor)
    scene = build_scene(tmp_path, images=batch, points=8192, parameters=ProjectParameters(features=features))
    payloads = [IndexPayload(image=content, features=features) for content in scene.contents]

    peak = peak_bytes("tasks.visual_index", INDEX_ESTIMATE, payloads, threads, tmp_path)

    assert 1 << 20 < peak <= INDEX_ESTIMATE.memory_bytes(batch)


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a store with a long row of images, indexed."""
    root = tmp_path_factory.mktemp("row")
    store, project, contents = build_row(ROW_IMAGES, root)
    index_sets([IndexPayload(image=c, features=project.parameters.features) for c in contents], store)
    return root


@pytest.mark.parametrize(("first", "batch", "threads"), [(0, 1, 1), (64, 64, 1), (128, 64, 12)])
def test_retrieving_stays_within_its_reservation(row: Path, first: int, batch: int, threads: int) -> None:
    """A source alone, windows of two, windows of 24; `python -m tests.bench.retrieval` has 5,000 images."""
    estimate, payloads = row_sources(row)
    peak = peak_bytes("tasks.pairs", estimate, payloads[first : first + batch], threads, row)

    assert 1 << 20 < peak <= estimate.memory_bytes(batch)


def row_sources(root: Path) -> tuple[Estimate, list[PairsPayload]]:
    """Return the estimate and the sources of the row."""
    pairing = pairing_of(Store(root).project(ROW_PROJECT))
    return pairs_estimate(pairing), [
        PairsPayload(project=ROW_PROJECT, image=image.content) for image in pairing.images
    ]


def test_the_queue_makes_what_the_plain_run_makes(photos: PhotoSet, tmp_path: Path) -> None:
    """Three neighbours each, many of them one-sided: the planner and the follow-ups match each pair once."""
    parameters = ProjectParameters(pairs=PairParameters(strategy="retrieval", top_k=3))
    plain = run_plain(photos("kermit"), tmp_path / "plain", parameters)
    with new_project(tmp_path / "queue", photos("kermit"), parameters, link=False) as local:
        summary = run_and_summarise(local, LocalOptions(profile="dedicated"), Console(quiet=True))

    assert summary["tracks_sha256"] == plain.tracks_sha256
    assert summary["pairs"] == len(plain.pairs) < 40
    assert summary["jobs"] == {"done": 4 * 11 + 2 * len(plain.pairs) + 2, "failed": 0, "retried": 0}
