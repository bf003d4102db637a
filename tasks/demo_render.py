"""Holds the pinhole camera of the demo scene and renders what it sees of a terrain.

Each pixel's ray is marched down through the height field, so nearer relief
hides what lies behind it. It knows no flight and no file (``tasks.demo_scene``).
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.demo_terrain import COLOUR_CELL_M, DEPTH_M, HEIGHT_CELL_M, WIDTH_M, Terrain

_MARCH_STEP_M = 0.75
_BISECTIONS = 6
_SENSOR_NOISE_LEVELS = 1.6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """One pinhole photo: OpenCV axes, ``x_camera = rotation @ (X - centre_m)``.

    ``rotation`` is (3, 3), ``centre_m`` (3,), both float64. The principal
    point is the middle of the picture.
    """

    rotation: NDArray[np.float64]
    centre_m: NDArray[np.float64]
    focal_px: float
    width_px: int
    height_px: int


def render_view(terrain: Terrain, view: View, noise_seed: int) -> NDArray[np.uint8]:
    """Return the photo as uint8 RGB (height_px, width_px, 3), with a little sensor noise."""
    directions = _ray_directions(view)
    altitude = _first_hits(terrain.height_m, view.centre_m, directions)
    x, y = _along_rays(view.centre_m, directions, altitude)
    columns, rows = _grid_position(x, y, COLOUR_CELL_M)
    colours = cv2.remap(terrain.colour_rgb, columns, rows, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    noise = np.random.default_rng(noise_seed).standard_normal(colours.shape, np.float32)
    return np.asarray(np.clip(colours + _SENSOR_NOISE_LEVELS * noise, 0, 255), np.uint8)


def _ray_directions(view: View) -> NDArray[np.float32]:
    """Return (height, width, 2): metres moved east and north per metre of descent."""
    x = np.arange(view.width_px) - (view.width_px - 1) / 2
    y = np.arange(view.height_px) - (view.height_px - 1) / 2
    in_camera = np.stack([*np.meshgrid(x, y), np.full((y.size, x.size), view.focal_px)], axis=-1)
    in_world = in_camera @ view.rotation
    return np.asarray(in_world[..., :2] / -in_world[..., 2:], np.float32)


def _along_rays(
    centre_m: NDArray[np.float64], directions: NDArray[np.float32], altitude_m: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the east and north coordinates at which each ray has come down to its altitude."""
    descent = np.float32(centre_m[2]) - altitude_m
    east, north = np.float32(centre_m[0]), np.float32(centre_m[1])
    return east + directions[..., 0] * descent, north + directions[..., 1] * descent


def _grid_position(
    x: NDArray[np.float32], y: NDArray[np.float32], cell_m: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (columns, rows) of ground positions, in grids whose first cell centre is (0, 0)."""
    return (
        np.asarray((x + WIDTH_M / 2) / cell_m - 0.5, np.float32),
        np.asarray((DEPTH_M / 2 - y) / cell_m - 0.5, np.float32),
    )


def _first_hits(
    height_m: NDArray[np.float32], centre_m: NDArray[np.float64], directions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the altitude at which each ray first meets the surface: march down, then bisect."""

    def is_below(altitude_m: NDArray[np.float32]) -> NDArray[np.bool_]:
        columns, rows = _grid_position(*_along_rays(centre_m, directions, altitude_m), HEIGHT_CELL_M)
        ground = cv2.remap(height_m, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(altitude_m <= ground)

    top, bottom = float(height_m.max()), float(height_m.min())
    above = np.full(directions.shape[:2], top + _MARCH_STEP_M, np.float32)
    flying = np.ones(above.shape, np.bool_)
    for altitude in np.arange(top, bottom - _MARCH_STEP_M, -_MARCH_STEP_M, dtype=np.float32):
        flying &= ~is_below(np.full_like(above, altitude))
        above[flying] = altitude
    step = np.float32(_MARCH_STEP_M)
    for _ in range(_BISECTIONS):
        step /= 2
        middle = above - step
        above = np.where(is_below(middle), above, middle)
    return above
