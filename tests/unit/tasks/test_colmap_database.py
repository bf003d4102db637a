"""Tests of the COLMAP database: what pycolmap reads back."""

import sqlite3
from pathlib import Path

import numpy as np
import pycolmap
import pytest

from tasks.colmap_database import DatabaseImage, DatabasePair, write_database
from tasks.store import Camera, Gps
from tasks.two_view import TwoViewConfig

NO_MATCHES = np.empty((0, 2), np.uint32)
MATCHES = np.array([[0, 1], [1, 0]], np.uint32)
KEYPOINTS = np.array([[10, 20, 6, np.pi / 2], [30.25, 40, 8, 0]], np.float32)
FUNDAMENTAL = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]])


def camera(focal_length_px: float = 900.0, *, focal_is_prior: bool = True) -> Camera:
    """Build a camera of 640 x 480."""
    return Camera(
        make="Maker",
        model="Model",
        focal_length_px=focal_length_px,
        focal_is_prior=focal_is_prior,
        width_px=640,
        height_px=480,
    )


def image(image_id: int, **changes: object) -> DatabaseImage:
    """Build an image with two keypoints."""
    fields = {"name": f"a/{image_id}.jpg", "camera": camera(), "keypoints": KEYPOINTS} | changes
    return DatabaseImage(image_id=image_id, **fields)  # type: ignore[arg-type]


def pair(left_id: int, right_id: int, **changes: object) -> DatabasePair:
    """Build a verified pair."""
    fields = {"matches": MATCHES, "inliers": MATCHES[:1], "config": TwoViewConfig.UNCALIBRATED} | changes
    return DatabasePair(left_id=left_id, right_id=right_id, **fields)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a database may be written."""
    return tmp_path / "database.db"


def read(path: Path) -> pycolmap.Database:
    """Open a database that was written."""
    return pycolmap.Database.open(path)


def test_pixels_are_shifted_by_half_and_sizes_become_radii(path: Path) -> None:
    """OpenCV's (0, 0) is COLMAP's (0.5, 0.5), its diameter twice COLMAP's scale."""
    write_database(path, [image(1)], [])

    with read(path) as database:
        keypoints = database.read_keypoints(1)
    assert keypoints == pytest.approx(np.array([[10.5, 20.5, 3, np.pi / 2], [30.75, 40.5, 4, 0]]))


def test_images_keep_their_ids_and_names(path: Path) -> None:
    """The caller's ids stand, sub folders and all."""
    write_database(path, [image(1), image(2), image(7)], [])

    with read(path) as database:
        rows = {row.image_id: row.name for row in database.read_all_images()}
    assert rows == {1: "a/1.jpg", 2: "a/2.jpg", 7: "a/7.jpg"}


def test_an_image_without_keypoints_has_a_row(path: Path) -> None:
    """A missing row would make the mapper lose images; no rows are a row too."""
    nothing = np.empty((0, 4), np.float32)
    no_descriptors = np.empty((0, 128), np.uint8)
    write_database(path, [image(1, keypoints=nothing, sift_descriptors=no_descriptors)], [])

    with read(path) as database:
        assert database.exists_keypoints(1)
        assert database.exists_descriptors(1)
        assert database.num_keypoints_for_image(1) == 0


def test_images_of_one_camera_share_it_and_others_do_not(path: Path) -> None:
    """Cameras are told apart by all they state, and numbered in order of appearance."""
    other = camera(800.0, focal_is_prior=False)
    write_database(path, [image(1), image(2, camera=other), image(3)], [])

    with read(path) as database:
        assert [row.camera_id for row in database.read_all_images()] == [1, 2, 1]
        first, second = database.read_all_cameras()
    assert first.model_name == second.model_name == "SIMPLE_RADIAL"
    assert first.params == pytest.approx([900, 320, 240, 0])
    assert (first.has_prior_focal_length, second.has_prior_focal_length) == (True, False)


def test_matches_name_the_smaller_id_first(path: Path) -> None:
    """A pair that comes the other way round has its columns swapped."""
    one_way = np.array([[0, 1]], np.uint32)
    write_database(
        path,
        [image(1), image(2), image(3)],
        [pair(1, 2, matches=one_way, inliers=one_way), pair(3, 2, matches=one_way, inliers=one_way)],
    )

    with read(path) as database:
        assert database.read_matches(1, 2).tolist() == [[0, 1]]
        assert database.read_matches(2, 3).tolist() == [[1, 0]]
        assert database.read_two_view_geometry(2, 3).inlier_matches.tolist() == [[1, 0]]


def in_colmap_pixels(x: float, y: float) -> np.typing.NDArray[np.float64]:
    """Return a homogeneous COLMAP pixel of an OpenCV pixel."""
    return np.array([x + 0.5, y + 0.5, 1.0])


@pytest.mark.parametrize("turned_round", [False, True])
def test_the_geometry_means_the_same_points(path: Path, *, turned_round: bool) -> None:
    """F and H give in COLMAP's pixels what they gave in OpenCV's, whichever image comes first."""
    homography = np.array([[1.1, 0.1, 5.0], [0.0, 0.9, -3.0], [1e-4, 0.0, 1.0]])
    left, right = np.array([100.0, 50.0, 1.0]), np.array([120.0, 70.0, 1.0])
    ids = (2, 1) if turned_round else (1, 2)
    geometries = pair(*ids, fundamental=FUNDAMENTAL, homography=homography, essential=FUNDAMENTAL)
    write_database(path, [image(1), image(2)], [geometries])

    with read(path) as database:
        geometry = database.read_two_view_geometry(*ids)
    mapped = np.asarray(geometry.H) @ in_colmap_pixels(100, 50)
    expected = homography @ left
    residual = in_colmap_pixels(120, 70) @ np.asarray(geometry.F) @ in_colmap_pixels(100, 50)
    assert residual == pytest.approx(right @ FUNDAMENTAL @ left)
    assert mapped[:2] / mapped[2] - 0.5 == pytest.approx(expected[:2] / expected[2])
    assert np.asarray(geometry.E) == pytest.approx(FUNDAMENTAL)


def test_a_refused_pair_is_marked_as_tried(path: Path) -> None:
    """COLMAP would match a pair without a row again."""
    refused = pair(1, 2, inliers=NO_MATCHES, config=TwoViewConfig.DEGENERATE)
    write_database(path, [image(1), image(2)], [refused])

    with read(path) as database:
        assert database.exists_two_view_geometry(1, 2)
        assert len(database.read_two_view_geometry(1, 2).inlier_matches) == 0
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT rows, config FROM two_view_geometries").fetchall() == [(0, 1)]


def test_positions_are_stated_as_latitude_longitude_altitude(path: Path) -> None:
    """COLMAP's WGS84 prior is in this order; a photo without GPS has no row."""
    gps = Gps(latitude_degrees=46.5, longitude_degrees=8.25, altitude_m=700)
    write_database(path, [image(1, gps=gps), image(2)], [])

    with read(path) as database:
        (prior,) = database.read_all_pose_priors()
    assert prior.corr_data_id.id == 1
    assert prior.position.tolist() == [46.5, 8.25, 700]
    assert prior.coordinate_system == pycolmap.PosePriorCoordinateSystem.WGS84


def test_sift_descriptors_are_stored_as_colmap_reads_them(path: Path) -> None:
    """One row of 128 bytes each, of the type SIFT; without them there is no row."""
    descriptors = np.arange(256, dtype=np.uint8).reshape(2, 128)
    write_database(path, [image(1, sift_descriptors=descriptors), image(2)], [])

    with read(path) as database:
        stored = database.read_descriptors(1)
        assert not database.exists_descriptors(2)
    assert stored.type == pycolmap.FeatureExtractorType.SIFT
    assert np.array_equal(stored.data, descriptors)


def test_a_written_database_is_one_file(path: Path) -> None:
    """Its journal is folded in, so that it can be moved as it is."""
    write_database(path, [image(1), image(2)], [pair(1, 2)])

    assert [entry.name for entry in path.parent.iterdir()] == ["database.db"]
