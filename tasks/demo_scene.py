"""Holds the demo flight and writes its photos, with the truth beside them.

The ground is ``tasks.demo_terrain``, the camera ``tasks.demo_render``; how
near a reconstruction comes to the truth is ``tasks.demo_truth``.
"""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pycolmap
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

from tasks.demo_render import View, render_view
from tasks.demo_terrain import make_terrain
from tasks.demo_truth import SceneTruth, write_truth

SEED = 20
PHOTOS_FOLDER = "photos"
TRUTH_FILE = "truth.json"
WIDTH_PX, HEIGHT_PX = 1200, 900
FOCAL_35MM = 28
FULL_FRAME_DIAGONAL_MM = 43.27
"""The figure by which COLMAP turns a 35 mm focal length into pixels."""
SENSOR_DIAGONAL_MM = 16.0
FOCAL_PX = FOCAL_35MM / FULL_FRAME_DIAGONAL_MM * float(np.hypot(WIDTH_PX, HEIGHT_PX))
ORIGIN_LATITUDE, ORIGIN_LONGITUDE, ORIGIN_ALTITUDE_M = 46.75, 8.25, 612.0

_STRIP_EAST_M = (-38.0, 0.0, 38.0)
_VIEWS_PER_STRIP = 5
_VIEW_SPACING_M = 25.0
_FLIGHT_HEIGHT_M = 110.0
_JPEG_QUALITY = 94


def render_scene(folder: Path, progress: Callable[[int, int], None] | None = None) -> SceneTruth:
    """Render the demo flight to ``folder``/photos/view_NN.jpg and ``folder``/truth.json.

    Three strips of five views, about 75 % overlap along and 72 % across, 1200
    x 900 px. The photos carry the true focal length and position as EXIF.
    ``progress`` is called with (photos written, photos in all).
    """
    photos = folder / PHOTOS_FOLDER
    photos.mkdir(parents=True, exist_ok=True)
    terrain = make_terrain(SEED)
    views = flight()
    for number, (name, view) in enumerate(views.items(), start=1):
        pixels = render_view(terrain, view, noise_seed=SEED + number)
        _write_photo(photos / name, pixels, view, second=2 * number)
        if progress is not None:
            progress(number, len(views))
    truth = _truth(views)
    write_truth(folder / TRUTH_FILE, truth)
    return truth


def flight() -> dict[str, View]:
    """Return the views by photo name, in the order they are flown: to and fro, as drones do."""
    draw = np.random.default_rng(SEED)
    views: dict[str, View] = {}
    for strip, east_m in enumerate(_STRIP_EAST_M):
        heading_degrees = 180.0 * (strip % 2)
        along = (np.arange(_VIEWS_PER_STRIP) - (_VIEWS_PER_STRIP - 1) / 2) * _VIEW_SPACING_M
        for north_m in along[::-1] if strip % 2 else along:
            drift = draw.uniform((-2, -2, -3), (2, 2, 3))
            tilt = draw.uniform((-5, -5, -4), (5, 5, 4)) + np.array([0, 0, heading_degrees])
            centre_m = np.array([east_m, north_m, _FLIGHT_HEIGHT_M]) + drift
            views[f"view_{len(views) + 1:02d}.jpg"] = View(
                rotation=_looking_down(tilt),
                centre_m=centre_m,
                focal_px=FOCAL_PX,
                width_px=WIDTH_PX,
                height_px=HEIGHT_PX,
            )
    return views


def _looking_down(tilt_degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rotation (3, 3) of a camera that looks down, top of the picture north, then tilted.

    ``tilt_degrees`` are the turns about the camera's own x, y and z axes.
    """
    rotation = np.diag([1.0, -1.0, -1.0])
    for axis, degrees in zip(np.eye(3), tilt_degrees, strict=True):
        rotation = cv2.Rodrigues(axis * np.deg2rad(degrees))[0] @ rotation
    return rotation


def _write_photo(path: Path, pixels: NDArray[np.uint8], view: View, second: int) -> None:
    exif = Image.Exif()
    exif[Base.Make] = "Tiepoint"
    exif[Base.Model] = "Rendered drone camera"
    details = exif.get_ifd(IFD.Exif)
    details[Base.DateTimeOriginal] = f"2024:06:01 10:00:{second:02d}"
    details[Base.FocalLength] = round(FOCAL_35MM * SENSOR_DIAGONAL_MM / FULL_FRAME_DIAGONAL_MM, 4)
    details[Base.FocalLengthIn35mmFilm] = FOCAL_35MM
    exif.get_ifd(IFD.GPSInfo).update(_gps_fields(view.centre_m))
    Image.fromarray(pixels).save(path, quality=_JPEG_QUALITY, subsampling=0, exif=exif)


def _gps_fields(centre_m: NDArray[np.float64]) -> dict[int, object]:
    """Return the EXIF GPS fields of a position in the scene's local east-north-up frame."""
    latitude, longitude, altitude_m = pycolmap.GPSTransform().enu_to_ellipsoid(
        centre_m[None], ORIGIN_LATITUDE, ORIGIN_LONGITUDE, ORIGIN_ALTITUDE_M
    )[0]
    return {
        GPS.GPSLatitudeRef: "N",
        GPS.GPSLatitude: _degrees_minutes_seconds(latitude),
        GPS.GPSLongitudeRef: "E",
        GPS.GPSLongitude: _degrees_minutes_seconds(longitude),
        GPS.GPSAltitudeRef: b"\x00",
        GPS.GPSAltitude: round(float(altitude_m), 3),
    }


def _degrees_minutes_seconds(degrees: float) -> tuple[float, float, float]:
    """Return the angle as EXIF writes it; seconds to 5 places, 0.3 mm on the ground."""
    minutes, seconds = divmod(round(degrees * 3600, 5), 60)
    whole_degrees, whole_minutes = divmod(minutes, 60)
    return whole_degrees, whole_minutes, round(seconds, 5)


def _truth(views: dict[str, View]) -> SceneTruth:
    return SceneTruth.model_validate(
        {
            "views": {
                name: {
                    "centre_m": view.centre_m.tolist(),
                    "rotation": view.rotation.tolist(),
                    "focal_px": view.focal_px,
                }
                for name, view in views.items()
            }
        }
    )
