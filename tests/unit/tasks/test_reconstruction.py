"""Tests of the kind model.reconstruct, on points that a row of cameras sees."""

import hashlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pycolmap
import pytest

from governor.model import Grant
from tasks.errors import MissingArtefactError, StoreError
from tasks.feature_sets import features_key
from tasks.kind import Done, Needs, NotReady
from tasks.parameters import ModelParameters, ProjectParameters
from tasks.reconstruction import (
    KINDS,
    ModelPayload,
    mapping_size,
    model_folder,
    model_job,
    model_key,
    model_report,
    model_summaries,
)
from tasks.store import Store
from tests.small_disk import small_disk
from tests.unit.tasks.mapped_scene import ENOUGH, IMAGES, POINTS, build_verified_scene, reconstruct
from tests.unit.tasks.scene_store import SceneStore


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> SceneStore:
    """Build a project of eight images that is ready to be mapped, once for all tests."""
    return build_verified_scene(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def scene(pristine: SceneStore, tmp_path: Path) -> SceneStore:
    """Return a copy of that project."""
    shutil.copytree(pristine.store.root, tmp_path / "copy")
    store = Store(tmp_path / "copy")
    return SceneStore(store=store, project=store.project(pristine.project.id), contents=pristine.contents)


def test_exact_observations_give_the_whole_scene(scene: SceneStore) -> None:
    """Every camera and point is found, with no error left."""
    assert isinstance(reconstruct(scene), Done)

    (summary,) = model_summaries(scene.store, scene.project)
    assert (summary.registered_images, summary.points) == (IMAGES, POINTS)
    assert summary.observations == IMAGES * POINTS
    assert summary.mean_track_length == IMAGES
    assert summary.mean_reprojection_error_px < 1e-3


def test_cameras_stand_in_a_row_as_they_were_placed(scene: SceneStore) -> None:
    """The model is the scene up to a similarity: equal steps on one line."""
    reconstruct(scene)

    model = pycolmap.Reconstruction(model_folder(scene.store, scene.project) / "0")
    centres = np.array([model.image(image_id).projection_center() for image_id in range(1, IMAGES + 1)])
    steps = np.diff(centres, axis=0)
    assert np.abs(steps - steps.mean(axis=0)).max() < 1e-3 * np.linalg.norm(steps[0])


def test_image_ids_follow_the_sorted_names(scene: SceneStore) -> None:
    """Not the order of contents, nor the order in which the mapper registered them."""
    reconstruct(scene)

    model = pycolmap.Reconstruction(model_folder(scene.store, scene.project) / "0")
    names = [model.image(image_id).name for image_id in range(1, IMAGES + 1)]
    assert names == [f"{number:03}.jpg" for number in range(IMAGES)]


def test_the_report_agrees_with_the_model_folder(scene: SceneStore) -> None:
    """What is told of a model is what pycolmap reads from its files."""
    reconstruct(scene)

    folder = model_folder(scene.store, scene.project)
    summary = model_report(scene.store, scene.project).models[0]
    model = pycolmap.Reconstruction(folder / "0")
    assert (model.num_reg_images(), model.num_points3D()) == (summary.registered_images, summary.points)
    assert model.compute_mean_reprojection_error() == pytest.approx(summary.mean_reprojection_error_px)


def test_mapping_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """Equal inputs give equal models in different stores."""
    digests = []
    for name in ("first", "second"):
        scene = build_verified_scene(tmp_path / name)
        reconstruct(scene)
        folder = model_folder(scene.store, scene.project)
        digests.append(hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest())

    assert digests[0] == digests[1]


def test_a_full_folder_for_temporary_files_is_told_and_is_not_the_stores_disk(
    scene: SceneStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mapper works there; with room the same job succeeds, and nothing is left behind."""
    with small_disk(tmp_path / "disk", 2**18) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))

        with pytest.raises(StoreError, match=r"has 0 MiB free; .* another TMPDIR") as told:
            reconstruct(scene)
        assert (told.value.__cause__, list(disk.folder.iterdir())) == (None, [])
    monkeypatch.undo()
    assert isinstance(reconstruct(scene), Done)


def test_a_second_run_does_nothing(scene: SceneStore) -> None:
    """A redelivered job finds its result."""
    reconstruct(scene)

    assert reconstruct(scene) == Done(recorded_items=0)


def test_a_damaged_model_is_made_again(scene: SceneStore) -> None:
    """A model folder that fails its checksums is replaced, not trusted."""
    reconstruct(scene)
    points = model_folder(scene.store, scene.project) / "0" / "points3D.bin"
    whole = points.read_bytes()
    points.write_bytes(whole[:-1])

    assert reconstruct(scene) == Done()
    assert (model_folder(scene.store, scene.project) / "0" / "points3D.bin").read_bytes() == whole


@pytest.mark.parametrize(
    ("images", "points", "words"),
    [
        (2, POINTS, "at least 3 photos; 2 could be used"),
        (IMAGES, 14, "No two photos show the same details"),
        (IMAGES, 20, "the best shares 20 details"),
    ],
)
def test_no_model_is_a_result_with_a_reason(tmp_path: Path, images: int, points: int, words: str) -> None:
    """Photos that do not connect are no error; the report says why in words."""
    scene = build_verified_scene(tmp_path, images=images, points=points)

    assert reconstruct(scene) == Done()
    report = model_report(scene.store, scene.project)
    assert report.models == ()
    assert words in (report.reason or "")
    assert len(report.unregistered_images) == images


@pytest.mark.parametrize(("min_model_size", "models"), [(IMAGES, 1), (IMAGES + 1, 0)])
def test_a_model_has_at_least_the_asked_size(tmp_path: Path, min_model_size: int, models: int) -> None:
    """A model of exactly the smallest size counts."""
    parameters = ProjectParameters(model=ModelParameters(min_model_size=min_model_size))
    scene = build_verified_scene(tmp_path, parameters=parameters)

    reconstruct(scene)
    assert len(model_summaries(scene.store, scene.project)) == models


def test_a_missing_input_is_planned_anew(scene: SceneStore) -> None:
    """Features that vanished make the job not ready; nothing is published."""
    scene.store.discard(features_key(scene.contents[0], scene.project.parameters.features))

    assert isinstance(reconstruct(scene), NotReady)
    with pytest.raises(MissingArtefactError):
        model_folder(scene.store, scene.project)


@pytest.mark.parametrize(("missing_bytes", "outcome"), [(0, Done), (1, Needs)])
def test_a_grant_below_the_need_goes_back(scene: SceneStore, missing_bytes: int, outcome: type) -> None:
    """A job that came without its estimate is returned with it, one byte below what it takes."""
    needed = model_job(scene.store, scene.project).estimate
    assert needed is not None
    grant = replace(ENOUGH, memory_bytes=needed.memory_fixed_bytes - missing_bytes)

    assert type(reconstruct(scene, grant)) is outcome


def test_a_job_is_charged_by_what_there_is_to_map(scene: SceneStore) -> None:
    """Counted are images, pairs, their inliers, and the largest photo."""
    size = mapping_size(scene.store, scene.project)

    pairs = IMAGES * (IMAGES - 1) // 2
    assert (size.images, size.pairs) == (IMAGES, pairs)
    assert 0.9 * pairs * POINTS <= size.inlier_matches <= pairs * POINTS
    assert size.largest_photo_px == 1200 * 800


def test_the_job_is_the_kinds_own(scene: SceneStore) -> None:
    """Its payload is valid, its stage entry is the project's."""
    (kind,) = KINDS
    job = model_job(scene.store, scene.project)

    assert (job.kind, job.stage, job.item) == (kind.name, "model", scene.project.id)
    assert kind.payload.model_validate(job.payload) == ModelPayload(project=scene.project.id)


def test_other_parameters_give_another_name(tmp_path: Path) -> None:
    """A model is never reused for a project that asks for something else."""
    keys = set()
    for min_model_size in (3, 4):
        parameters = ProjectParameters(model=ModelParameters(min_model_size=min_model_size))
        scene = build_verified_scene(tmp_path / str(min_model_size), images=3, parameters=parameters)
        keys.add(model_key(scene.store, scene.project))

    assert len(keys) == 2


def test_one_granted_thread_is_enough(scene: SceneStore) -> None:
    """The result does not depend on how many threads were granted."""
    grant = Grant(batch=1, cpu_threads=1, memory_bytes=ENOUGH.memory_bytes)
    reconstruct(scene, grant)
    few = (model_folder(scene.store, scene.project) / "SHA256SUMS").read_text()
    scene.store.discard(model_key(scene.store, scene.project))
    reconstruct(scene, replace(grant, cpu_threads=8))

    assert (model_folder(scene.store, scene.project) / "SHA256SUMS").read_text() == few
