"""Tests of the demo flight and its files."""

import hashlib
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from PIL import ExifTags, Image

from tasks.demo_render import _ray_directions
from tasks.demo_scene import (
    FOCAL_PX,
    ORIGIN_ALTITUDE_M,
    ORIGIN_LATITUDE,
    ORIGIN_LONGITUDE,
    flight,
    render_scene,
)
from tasks.demo_terrain import DEPTH_M, WIDTH_M, make_terrain
from tasks.demo_truth import SceneTruth, read_truth

LOWEST_GROUND_M = -20.0


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SceneTruth, list[tuple[int, int]]]:
    """Render the scene once; return its folder, its truth and the progress calls."""
    folder = tmp_path_factory.mktemp("scene")
    calls: list[tuple[int, int]] = []
    truth = render_scene(folder, lambda done, total: calls.append((done, total)))
    return folder, truth, calls


def test_every_ray_ends_on_the_ground() -> None:
    """No photo shows the rim of the terrain, even at its lowest point."""
    for view in flight().values():
        reach = _ray_directions(view)[[0, 0, -1, -1], [0, -1, 0, -1]] * (view.centre_m[2] - LOWEST_GROUND_M)
        corners = reach + view.centre_m[:2]

        assert np.all(np.abs(corners) < (WIDTH_M / 2, DEPTH_M / 2))


def test_the_ground_is_rough_but_below_the_flight() -> None:
    """Relief gives parallax: tens of metres of height, well under the drone."""
    height = make_terrain(20).height_m

    assert height.min() > LOWEST_GROUND_M
    assert 15 < np.ptp(height) < 50
    assert height.max() < 60


def test_neighbours_overlap_by_70_to_80_percent() -> None:
    """The distance between successive photos of a strip is 20 to 30 % of the picture's ground height."""
    centres = np.array([view.centre_m for view in flight().values()])
    steps = np.linalg.norm(np.diff(centres[:5, :2], axis=0), axis=1)
    ground_height_m = 110 * 900 / FOCAL_PX

    assert 0.2 < np.mean(steps) / ground_height_m < 0.3


def test_photos_and_truth_are_written(
    scene: tuple[Path, SceneTruth, list[tuple[int, int]]],
) -> None:
    """Fifteen photos stand alone in their folder, the truth beside it, each step reported."""
    folder, truth, calls = scene

    names = sorted(path.name for path in (folder / "photos").iterdir())
    assert names == sorted(truth.views)
    assert len(names) == 15
    assert read_truth(folder / "truth.json") == truth
    assert calls == [(number, 15) for number in range(1, 16)]


def test_exif_leads_to_the_true_focal_length(
    scene: tuple[Path, SceneTruth, list[tuple[int, int]]],
) -> None:
    """The 35 mm figure gives the true focal length in pixels by COLMAP's formula."""
    folder, truth, _ = scene
    camera = pycolmap.infer_camera_from_image(folder / "photos" / "view_01.jpg")

    assert camera.has_prior_focal_length
    assert camera.mean_focal_length() == pytest.approx(truth.views["view_01.jpg"].focal_px, rel=1e-4)


def test_exif_position_is_the_true_centre(
    scene: tuple[Path, SceneTruth, list[tuple[int, int]]],
) -> None:
    """Latitude, longitude and altitude lead back to the centre within a few millimetres."""
    folder, truth, _ = scene
    with Image.open(folder / "photos" / "view_07.jpg") as photo:
        gps = photo.getexif().get_ifd(ExifTags.IFD.GPSInfo)
    latitude, longitude = (
        float(degrees) + float(minutes) / 60 + float(seconds) / 3600
        for degrees, minutes, seconds in (gps[ExifTags.GPS.GPSLatitude], gps[ExifTags.GPS.GPSLongitude])
    )
    position = np.array([[latitude, longitude, float(gps[ExifTags.GPS.GPSAltitude])]])
    origin = (ORIGIN_LATITUDE, ORIGIN_LONGITUDE, ORIGIN_ALTITUDE_M)
    centre_m = pycolmap.GPSTransform().ellipsoid_to_enu(position, *origin)[0]

    assert centre_m == pytest.approx(truth.views["view_07.jpg"].centre_m, abs=0.005)


def test_rendering_twice_gives_the_same_bytes(
    scene: tuple[Path, SceneTruth, list[tuple[int, int]]], tmp_path: Path
) -> None:
    """The demo's photos have one content hash each, so a second run finds its artefacts again."""
    folder, _, _ = scene
    render_scene(tmp_path)

    for path in sorted((folder / "photos").iterdir()):
        again = (tmp_path / "photos" / path.name).read_bytes()
        assert hashlib.sha256(again).digest() == hashlib.sha256(path.read_bytes()).digest()
