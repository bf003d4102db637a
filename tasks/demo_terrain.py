"""Holds the ground of the demo scene: relief, fields, a road, trees and roofs.

All of it is made from a seed. It knows no camera (see ``tasks.demo_render``).
Axes: x east, y north, z up, in metres; row 0 of every grid is the north edge.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Float32Grid = NDArray[np.float32]

WIDTH_M = 276.0
DEPTH_M = 252.0
HEIGHT_CELL_M = 0.24
COLOUR_CELL_M = 0.08
CELLS_RATIO = 3
SUN_TOWARDS = (-0.55, 0.45, 0.70)
"""Unit-like vector from the ground to the sun: a late morning, from the north-west."""

_FIELD_COLOURS_RGB = (
    (146, 138, 92),
    (104, 122, 66),
    (128, 130, 82),
    (158, 140, 104),
    (92, 112, 60),
    (138, 118, 84),
    (116, 128, 76),
)
_ROOF_COLOURS_RGB = ((152, 84, 66), (128, 124, 120), (168, 104, 78), (106, 98, 96))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terrain:
    """Heights and lit colours of one square of ground, centred on (0, 0).

    ``height_m`` is float32 with cells of HEIGHT_CELL_M, ``colour_rgb`` uint8
    (rows, columns, 3) with cells of COLOUR_CELL_M; both cover the same ground.
    """

    height_m: Float32Grid
    colour_rgb: NDArray[np.uint8]


def make_terrain(seed: int) -> Terrain:
    """Return the terrain of this seed; equal seeds give equal terrains."""
    draw = np.random.default_rng(seed)
    rows, columns = round(DEPTH_M / HEIGHT_CELL_M), round(WIDTH_M / HEIGHT_CELL_M)
    ground = _hills(draw, rows, columns)
    cover = _fields(draw, rows, columns)
    road = _road_ratio(rows, columns)
    cover = _blend(cover, (150.0, 146.0, 140.0), road)
    tree_height, tree_ratio = _trees(draw, road)
    cover = _blend(cover, (62.0, 82.0, 40.0), tree_ratio)
    with_roofs, cover = _add_roofs(draw, np.asarray(ground + tree_height, np.float32), cover)
    return Terrain(height_m=with_roofs, colour_rgb=_lit_colours(draw, with_roofs, cover))


def _noise(draw: np.random.Generator, rows: int, columns: int, cell: float) -> Float32Grid:
    """Return smooth noise of unit variance whose features are ``cell`` grid cells wide."""
    coarse_shape = (int(rows / cell) + 3, int(columns / cell) + 3)
    coarse = draw.standard_normal(coarse_shape, np.float32)
    smooth = cv2.resize(coarse, (columns, rows), interpolation=cv2.INTER_CUBIC)
    return np.asarray(smooth, np.float32)


def _hills(draw: np.random.Generator, rows: int, columns: int) -> Float32Grid:
    relief = np.zeros((rows, columns), np.float32)
    for width_m, amplitude_m in ((90.0, 5.0), (40.0, 2.0), (14.0, 0.5), (4.0, 0.12), (1.2, 0.05)):
        relief += amplitude_m * _noise(draw, rows, columns, width_m / HEIGHT_CELL_M)
    return relief


def _fields(draw: np.random.Generator, rows: int, columns: int) -> Float32Grid:
    """Return a patchwork: each cell takes the colour of the nearest of some seeds, with plough lines."""
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float32)
    x += 6 * _noise(draw, rows, columns, 60)
    y += 6 * _noise(draw, rows, columns, 60)
    seeds = draw.uniform((0, 0), (rows, columns), (34, 2)).astype(np.float32)
    nearest = _nearest_seed(x, y, seeds)
    palette = np.array(_FIELD_COLOURS_RGB, np.float32)[draw.integers(0, len(_FIELD_COLOURS_RGB), len(seeds))]
    angles = draw.uniform(0, np.pi, len(seeds)).astype(np.float32)[nearest]
    strength = draw.uniform(0, 6, len(seeds)).astype(np.float32)[nearest]
    lines = strength * np.sin((x * np.cos(angles) + y * np.sin(angles)) * (2 * np.pi / 9))
    return np.asarray(palette[nearest] + lines[..., None], np.float32)


def _nearest_seed(x: Float32Grid, y: Float32Grid, seeds: Float32Grid) -> NDArray[np.intp]:
    """Return the index of the seed (row, column) nearest to each cell."""
    nearest = np.zeros(x.shape, np.intp)
    distance = np.full(x.shape, np.inf, np.float32)
    for index, (seed_y, seed_x) in enumerate(seeds):
        candidate = (y - seed_y) ** 2 + (x - seed_x) ** 2
        nearest[candidate < distance] = index
        np.minimum(distance, candidate, out=distance)
    return nearest


def _road_ratio(rows: int, columns: int) -> Float32Grid:
    """Return the share (0..1) of road in each cell: one winding lane from west to east."""
    x = np.arange(columns, dtype=np.float32) * HEIGHT_CELL_M
    middle_m = DEPTH_M * 0.46 + 22 * np.sin(x / 41) + 6 * np.sin(x / 17)
    y = (np.arange(rows, dtype=np.float32) * HEIGHT_CELL_M)[:, None]
    return np.asarray(np.clip((2.6 - np.abs(y - middle_m)) / 0.5, 0, 1), np.float32)


def _trees(draw: np.random.Generator, road: Float32Grid) -> tuple[Float32Grid, Float32Grid]:
    """Return (height above ground in metres, share of crown 0..1); trees stand in groves, off the road."""
    rows, columns = road.shape
    height = np.zeros_like(road)
    grove = _noise(draw, rows, columns, 26 / HEIGHT_CELL_M)
    for row, column, radius_m in draw.uniform((0, 0, 1.4), (rows, columns, 3.4), (900, 3)):
        centre = (int(row), int(column))
        if grove[centre] > 0.35 and road[centre] == 0:
            _raise_crown(height, centre, radius_m)
    crown = np.clip(height / 0.5, 0, 1)
    leaves = 1 + 0.18 * _noise(draw, rows, columns, 3) + 0.1 * _noise(draw, rows, columns, 1.5)
    return np.asarray(height * leaves, np.float32), np.asarray(crown, np.float32)


def _raise_crown(height: Float32Grid, centre: tuple[int, int], radius_m: float) -> None:
    """Raise one half ellipsoid in place, 1.3 times as high as it is wide."""
    reach = int(radius_m / HEIGHT_CELL_M) + 1
    top, left = max(centre[0] - reach, 0), max(centre[1] - reach, 0)
    window = height[top : centre[0] + reach + 1, left : centre[1] + reach + 1]
    y, x = np.mgrid[top : top + window.shape[0], left : left + window.shape[1]]
    distance_m = HEIGHT_CELL_M * np.hypot(y - centre[0], x - centre[1])
    crown = 1.3 * np.sqrt(np.maximum(radius_m**2 - distance_m**2, 0))
    np.maximum(window, crown.astype(np.float32), out=window)


def _add_roofs(
    draw: np.random.Generator, surface: Float32Grid, cover: Float32Grid
) -> tuple[Float32Grid, Float32Grid]:
    """Return surface and cover with some gabled houses set beside the road."""
    surface, cover = surface.copy(), cover.copy()
    rows, columns = surface.shape
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float32) * np.float32(HEIGHT_CELL_M)
    for along in np.linspace(0.08, 0.92, 13):
        centre_x = WIDTH_M * along + draw.uniform(-4, 4)
        side = draw.choice((-1.0, 1.0)) * draw.uniform(10, 15)
        centre_y = DEPTH_M * 0.46 + 22 * np.sin(centre_x / 41) + 6 * np.sin(centre_x / 17) + side
        half_length_m, half_width_m, turn = draw.uniform((5, 3.5, -0.5), (8, 5, 0.5))
        u = (x - centre_x) * np.cos(turn) + (y - centre_y) * np.sin(turn)
        v = -(x - centre_x) * np.sin(turn) + (y - centre_y) * np.cos(turn)
        inside = (np.abs(u) < half_length_m) & (np.abs(v) < half_width_m)
        floor_m = float(np.median(surface[inside]))
        surface[inside] = floor_m + 3.2 + 0.7 * (half_width_m - np.abs(v[inside]))
        roof = np.array(_ROOF_COLOURS_RGB[int(draw.integers(len(_ROOF_COLOURS_RGB)))], np.float32)
        tiles = 10 * np.sin(v * (2 * np.pi / 0.9)) + 6 * _noise(draw, rows, columns, 3)
        cover[inside] = roof + tiles[inside, None]
    return surface, cover


def _blend(cover: Float32Grid, colour_rgb: tuple[float, float, float], ratio: Float32Grid) -> Float32Grid:
    weight = ratio[..., None]
    return np.asarray(cover * (1 - weight) + np.array(colour_rgb, np.float32) * weight, np.float32)


def _lit_colours(draw: np.random.Generator, height: Float32Grid, cover: Float32Grid) -> NDArray[np.uint8]:
    """Return the cover at the finer colour grid, with grain of many sizes, sun and cast shadows."""
    rows, columns = height.shape[0] * CELLS_RATIO, height.shape[1] * CELLS_RATIO
    light = 0.42 + 0.78 * _sunlight_ratio(height) * _sunlit_ratio(height)
    fine_light = np.asarray(cv2.resize(light, (columns, rows), interpolation=cv2.INTER_LINEAR), np.float32)
    for cell, strength in ((160.0, 0.05), (40.0, 0.07), (14.0, 0.09), (6.0, 0.09), (2.5, 0.09)):
        fine_light *= 1 + strength * _noise(draw, rows, columns, cell)
    colours = np.asarray(cv2.resize(cover, (columns, rows), interpolation=cv2.INTER_LINEAR), np.float32)
    colours *= fine_light[..., None]
    return np.asarray(np.clip(colours, 0, 255, out=colours), np.uint8)


def _sunlight_ratio(height: Float32Grid) -> Float32Grid:
    """Return Lambert's cosine between surface normal and sun (0..1)."""
    down_rows, along_columns = np.gradient(height, np.float32(HEIGHT_CELL_M))
    sun = np.array(SUN_TOWARDS, np.float32) / np.linalg.norm(SUN_TOWARDS)
    # Rows grow southwards, so the slope towards north is minus the row gradient.
    cosine = (-along_columns * sun[0] + down_rows * sun[1] + sun[2]) / np.sqrt(
        1 + along_columns**2 + down_rows**2
    )
    return np.asarray(np.clip(cosine, 0, 1), np.float32)


def _sunlit_ratio(height: Float32Grid) -> Float32Grid:
    """Return 0 where something nearer than 14 m stands before the sun, 1 elsewhere, softened."""
    east, north, up = SUN_TOWARDS
    rise_per_m = up / np.hypot(east, north)
    shadow = np.zeros(height.shape, np.float32)
    for distance_m in np.arange(0.5, 14, 0.5):
        step = distance_m / HEIGHT_CELL_M / np.hypot(east, north)
        shift = np.array([[1, 0, -east * step], [0, 1, north * step]], np.float32)
        towards_sun = cv2.warpAffine(height, shift, height.shape[::-1], borderMode=cv2.BORDER_REPLICATE)
        np.maximum(shadow, towards_sun - height > rise_per_m * distance_m, out=shadow)
    return 1 - cv2.GaussianBlur(shadow, (0, 0), 1.2).astype(np.float32)
