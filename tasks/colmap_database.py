"""Writes a COLMAP database from images and pairs, one at a time.

It knows COLMAP's conventions (pixels, ids, two-view geometry) and pycolmap's
writer, but no store: :mod:`tasks.colmap_inputs` brings the images and pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pycolmap
from numpy.typing import NDArray

from tasks.store import Camera, Gps
from tasks.two_view import TwoViewConfig

CAMERA_MODEL = "SIMPLE_RADIAL"
PIXEL_CENTRE_SHIFT_PX = 0.5
"""COLMAP's origin is the corner of the first pixel, OpenCV's its centre."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DatabaseImage:
    """One image with its features, in OpenCV's pixel convention.

    ``keypoints`` are float32 (N, 4): x, y, size (diameter) in px, angle in
    radians. ``sift_descriptors`` are uint8 (N, 128) in COLMAP's form, or None
    where COLMAP knows no such descriptor or none are wanted.
    """

    image_id: int
    name: str
    camera: Camera
    keypoints: NDArray[np.float32]
    sift_descriptors: NDArray[np.uint8] | None = None
    gps: Gps | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DatabasePair:
    """One pair of images that was tried, in OpenCV's pixel convention.

    ``matches`` (M, 2) and ``inliers`` (K, 2) are uint32 feature indices;
    column 0 belongs to ``left_id``, which may be the larger id. A pair that
    failed has no inliers. Matrices map left to right.
    """

    left_id: int
    right_id: int
    matches: NDArray[np.uint32]
    inliers: NDArray[np.uint32]
    config: TwoViewConfig
    fundamental: Matrix | None = None
    essential: Matrix | None = None
    homography: Matrix | None = None


def write_database(path: Path, images: Iterable[DatabaseImage], pairs: Iterable[DatabasePair]) -> None:
    """Write a new database; ``path`` must not exist and lies on a local disk (SQLite locks it).

    Cameras are numbered in the order in which the images bring them.
    """
    with pycolmap.Database.open(path) as database:
        camera_ids: dict[Camera, int] = {}
        with pycolmap.DatabaseTransaction(database):
            for image in images:
                _write_image(database, image, camera_ids)
        with pycolmap.DatabaseTransaction(database):
            for pair in pairs:
                _write_pair(database, pair)


def colmap_keypoints(keypoints: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return keypoints (N, 4) as COLMAP states them: x, y, scale in px, orientation in radians.

    OpenCV's size is a diameter, COLMAP's scale a radius.
    """
    converted = np.array(keypoints, np.float32).reshape(-1, 4)
    converted[:, :2] += np.float32(PIXEL_CENTRE_SHIFT_PX)
    converted[:, 2] /= 2
    return converted


def _write_image(database: pycolmap.Database, image: DatabaseImage, camera_ids: dict[Camera, int]) -> None:
    if image.camera not in camera_ids:
        camera_ids[image.camera] = len(camera_ids) + 1
        _write_camera(database, image.camera, camera_ids[image.camera])
    camera_id, image_id = camera_ids[image.camera], image.image_id
    row = pycolmap.Image(name=image.name, camera_id=camera_id, image_id=image_id)
    database.write_image(row, use_image_id=True)
    frame = pycolmap.Frame(frame_id=image_id, rig_id=camera_id)
    frame.add_data_id(row.data_id)
    database.write_frame(frame, use_frame_id=True)
    database.write_keypoints(image_id, colmap_keypoints(image.keypoints))
    if image.sift_descriptors is not None:
        sift = pycolmap.FeatureDescriptors(pycolmap.FeatureExtractorType.SIFT, image.sift_descriptors)
        database.write_descriptors(image_id, sift)
    if image.gps is not None:
        _write_position(database, row, image.gps)


def _write_camera(database: pycolmap.Database, camera: Camera, camera_id: int) -> None:
    """Write a camera and the rig that holds it alone."""
    row = pycolmap.Camera.create_from_model_name(
        camera_id, CAMERA_MODEL, camera.focal_length_px, camera.width_px, camera.height_px
    )
    row.has_prior_focal_length = camera.focal_is_prior
    database.write_camera(row, use_camera_id=True)
    rig = pycolmap.Rig(rig_id=camera_id)
    rig.add_ref_sensor(row.sensor_id)
    database.write_rig(rig, use_rig_id=True)


def _write_position(database: pycolmap.Database, image: pycolmap.Image, gps: Gps) -> None:
    prior = pycolmap.PosePrior(
        pose_prior_id=image.image_id,
        corr_data_id=image.data_id,
        position=np.array([gps.latitude_degrees, gps.longitude_degrees, gps.altitude_m]),
        coordinate_system=pycolmap.PosePriorCoordinateSystem.WGS84,
    )
    database.write_pose_prior(prior, use_pose_prior_id=True)


def _write_pair(database: pycolmap.Database, pair: DatabasePair) -> None:
    """Write matches and geometry; where left_id is the larger id, pycolmap turns both round."""
    database.write_matches(pair.left_id, pair.right_id, np.asarray(pair.matches, np.uint32).reshape(-1, 2))
    geometry = pycolmap.TwoViewGeometry()
    geometry.config = pycolmap.TwoViewGeometryConfiguration.__members__[pair.config.name]
    geometry.inlier_matches = np.asarray(pair.inliers, np.uint32).reshape(-1, 2)
    # COLMAP's pixel is OpenCV's plus a shift S: x' F x = 0 becomes F_colmap = S^-T F S^-1,
    # H_colmap = S H S^-1. E lives in camera rays and does not change.
    shift = np.array([[1, 0, PIXEL_CENTRE_SHIFT_PX], [0, 1, PIXEL_CENTRE_SHIFT_PX], [0, 0, 1]])
    unshift = np.linalg.inv(shift)
    if pair.fundamental is not None:
        geometry.F = unshift.T @ pair.fundamental @ unshift
    if pair.essential is not None:
        geometry.E = pair.essential
    if pair.homography is not None:
        geometry.H = shift @ pair.homography @ unshift
    database.write_two_view_geometry(pair.left_id, pair.right_id, geometry)
