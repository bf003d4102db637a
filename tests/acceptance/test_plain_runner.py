"""Whole projects, stage by stage: the same tracks however the work is granted, true ones at that."""

import csv
from pathlib import Path

import pytest

from tasks.store import Store
from tests.conftest import PhotoSet
from tests.plain_runner import PlainResult, run_plain


@pytest.fixture(scope="module")
def kermit(photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> PlainResult:
    """Return kermit's tracks made on one thread in the largest batches."""
    return run_plain(photos("kermit"), tmp_path_factory.mktemp("kermit"))


def test_kermit_gives_tracks_over_all_images(kermit: PlainResult) -> None:
    """All eleven photos of the known set are tied together, with room to the measured 38 pairs."""
    tied_images = {name for track in kermit.tracks for name in track}

    assert not kermit.failed_items
    assert len(kermit.pairs) == 11 * 10 // 2
    assert kermit.accepted_pairs >= 30
    assert len(tied_images) == 11
    assert len(kermit.tracks) > 900
    assert max(map(len, kermit.tracks)) >= 8


@pytest.mark.parametrize(("threads", "max_batch"), [(2, 64), (1, 1), (8, 3)])
def test_tracks_do_not_depend_on_the_grant(
    kermit: PlainResult, photos: PhotoSet, tmp_path: Path, threads: int, max_batch: int
) -> None:
    """Other thread counts and batch sizes give the same bytes."""
    result = run_plain(photos("kermit"), tmp_path, threads=threads, max_batch=max_batch)

    assert result.tracks_sha256 == kermit.tracks_sha256


def test_running_again_makes_nothing_anew(kermit: PlainResult, photos: PhotoSet) -> None:
    """A finished project that is run again keeps every artefact file."""
    before = _written_ns(kermit.store)

    again = run_plain(photos("kermit"), kermit.store.root)

    assert again.tracks_sha256 == kermit.tracks_sha256
    assert _written_ns(kermit.store) == before


def test_no_track_joins_two_scenes(photos: PhotoSet, tmp_path: Path) -> None:
    """Photos of two places in one folder give the tracks of two places."""
    folder = photos("mixed_et_kermit")
    with (folder.parent / "labels.csv").open(encoding="utf-8", newline="") as file:
        scene_of = {row["image"]: row["scene"] for row in csv.DictReader(file)}

    result = run_plain(folder, tmp_path)

    scenes = [{scene_of[name] for name in track} for track in result.tracks]
    assert set().union(*scenes) == set(scene_of.values())
    assert all(len(scenes_of_track) == 1 for scenes_of_track in scenes)


def _written_ns(store: Store) -> dict[Path, int]:
    artefacts = (store.root / "artefacts").rglob("*.safetensors")
    return {path: path.stat().st_mtime_ns for path in artefacts}
