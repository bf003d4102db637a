"""Whole projects up to their models: the known photo sets, and the demo against its truth."""

import csv
import json
from pathlib import Path

import numpy as np
import pycolmap
import pytest

from tasks.demo_scene import PHOTOS_FOLDER, render_scene
from tasks.demo_truth import SceneTruth, TrueView, compare_with_truth
from tasks.exports.ply import export_ply
from tasks.model_report import ModelReport
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.reconstruction import model_folder, model_report
from tests.conftest import PhotoSet
from tests.plain_runner import PlainResult, run_plain

IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def run_to_model(folder: Path, root: Path, features: FeatureParameters | None = None) -> PlainResult:
    """Run all stages on a folder of photos."""
    parameters = ProjectParameters(features=features or FeatureParameters())
    return run_plain(folder, root, parameters, threads=2, with_model=True)


def report_of(result: PlainResult) -> ModelReport:
    """Return what is told of the models."""
    return model_report(result.store, result.project)


def best_centres(result: PlainResult) -> dict[str, np.typing.NDArray[np.float64]]:
    """Return the camera centres of the best model by image name."""
    model = pycolmap.Reconstruction(model_folder(result.store, result.project) / "0")
    return {
        model.image(image_id).name: model.image(image_id).projection_center()
        for image_id in model.reg_image_ids()
    }


def test_kermit_registers_all_its_photos(photos: PhotoSet, tmp_path: Path) -> None:
    """The smoke test: eleven photos, one model, hundreds of points."""
    report = report_of(run_to_model(photos("kermit"), tmp_path))

    (model,) = report.models
    assert model.registered_images == 11
    assert model.points > 400
    assert model.mean_reprojection_error_px < 0.5


def test_two_scenes_in_one_folder_give_two_models(photos: PhotoSet, tmp_path: Path) -> None:
    """11 and 9 photos, never mixed, and one PLY file each."""
    folder = photos("mixed_et_kermit")
    with (folder.parent / "labels.csv").open(encoding="utf-8", newline="") as file:
        scene_of = {row["image"]: row["scene"] for row in csv.DictReader(file)}

    result = run_to_model(folder, tmp_path / "store")

    models = report_of(result).models
    assert [model.registered_images for model in models] == [11, 9]
    assert all(len({scene_of[name] for name in model.images}) == 1 for model in models)
    files = export_ply(result.store, result.project.id, tmp_path / "points.ply")
    assert [file.name for file in files] == ["points.ply", "points-1.ply"]


def test_a_facade_meets_its_reference_poses(photos: PhotoSet, tmp_path: Path) -> None:
    """lund_door: all twelve cameras lie within 0.1 % of the extent of the reference."""
    folder = photos("lund_door")
    features = FeatureParameters(max_image_size_px=1000, max_features=4096)

    centres = best_centres(run_to_model(folder, tmp_path, features))

    error = compare_with_truth(centres, reference_poses(folder.parent / "gt" / "gt_poses.json"))
    assert error is not None
    assert error.compared_images == 12
    assert error.centre_rms_m < 0.001 * error.extent_m


def reference_poses(path: Path) -> SceneTruth:
    """Read the set's reference: (3, 4) matrices [R | t] with x_camera = R X + t."""
    views = {}
    for name, rows in json.loads(path.read_text(encoding="utf-8"))["poses"].items():
        pose = np.array(rows)
        centre = -pose[:, :3].T @ pose[:, 3]
        views[name] = TrueView(centre_m=tuple(centre.tolist()), rotation=IDENTITY, focal_px=1.0)
    return SceneTruth(views=views)


def test_the_demo_meets_its_truth_in_metres(tmp_path: Path) -> None:
    """Fifteen rendered photos: all registered, centres within 5 cm, and laid on their GPS positions."""
    truth = render_scene(tmp_path / "scene")

    result = run_to_model(
        tmp_path / "scene" / PHOTOS_FOLDER, tmp_path / "store", FeatureParameters(max_features=2048)
    )

    (model,) = report_of(result).models
    error = compare_with_truth(best_centres(result), truth)
    assert model.registered_images == len(truth.views)
    assert error is not None
    assert error.centre_rms_m < 0.05
    assert model.georeference.positions_used == len(truth.views)
    assert model.georeference.rms_m == pytest.approx(error.centre_rms_m, abs=0.02)
