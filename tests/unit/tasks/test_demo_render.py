"""Tests of the demo camera: where it sees what."""

import numpy as np
from numpy.typing import NDArray

from tasks.demo_render import View, render_view
from tasks.demo_terrain import COLOUR_CELL_M, DEPTH_M, HEIGHT_CELL_M, WIDTH_M, Terrain

DOWN = np.diag([1.0, -1.0, -1.0])


def terrain_with_tower(tower_height_m: float) -> Terrain:
    """Build black ground at height 0 with one white square, 4 m wide, centred 10 m east of the middle."""
    height = np.zeros((round(DEPTH_M / HEIGHT_CELL_M), round(WIDTH_M / HEIGHT_CELL_M)), np.float32)
    colour = np.zeros((round(DEPTH_M / COLOUR_CELL_M), round(WIDTH_M / COLOUR_CELL_M), 3), np.uint8)
    height[_square(height, HEIGHT_CELL_M)] = tower_height_m
    colour[_square(colour, COLOUR_CELL_M)] = 255
    return Terrain(height_m=height, colour_rgb=colour)


def _square(grid: NDArray[np.generic], cell_m: float) -> tuple[slice, slice]:
    middle_row, middle_column = grid.shape[0] // 2, grid.shape[1] // 2 + round(10 / cell_m)
    reach = round(2 / cell_m)
    return (
        slice(middle_row - reach, middle_row + reach),
        slice(middle_column - reach, middle_column + reach),
    )


def looking_down() -> View:
    """Build a small camera 100 m above the middle, 10 px per metre of ground at height 0."""
    return View(
        rotation=DOWN, centre_m=np.array([0.0, 0.0, 100.0]), focal_px=1000.0, width_px=401, height_px=201
    )


def white_box(picture: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the middle (x, y) of what is white."""
    rows, columns = np.nonzero(picture[..., 0] > 128)
    return float((columns.min() + columns.max()) / 2), float((rows.min() + rows.max()) / 2)


def test_flat_ground_is_seen_where_the_pinhole_formula_says() -> None:
    """10 m east of the nadir is 100 px right of the principal point, in OpenCV's pixel convention."""
    picture = render_view(terrain_with_tower(0.0), looking_down(), noise_seed=1)

    x, y = white_box(picture)
    assert abs(x - (200 + 100)) <= 1
    assert abs(y - 100) <= 1


def test_a_roof_is_seen_farther_out_than_its_ground() -> None:
    """A roof 20 m up lies 80 m below the camera: its middle moves from 100 px to 125 px off the axis."""
    picture = render_view(terrain_with_tower(20.0), looking_down(), noise_seed=1)

    roof_right_edge = int(np.nonzero(picture[100, :, 0] > 128)[0].max())
    assert abs(roof_right_edge - (200 + 12 * 1000 / 80)) <= 2


def test_a_tower_hides_the_ground_behind_it() -> None:
    """Of white ground behind a tower, only what the sight line clears is seen."""
    terrain = terrain_with_tower(20.0)
    behind = slice(terrain.colour_rgb.shape[1] // 2 + round(12.2 / COLOUR_CELL_M), None)
    terrain.colour_rgb[...] = 0
    terrain.colour_rgb[:, behind] = 255

    picture = render_view(terrain, looking_down(), noise_seed=1)

    first_white = int(np.nonzero(picture[100, :, 0] > 128)[0].min())
    assert first_white >= 200 + 12 * 1000 / 80 - 2
    assert int(np.nonzero(picture[10, :, 0] > 128)[0].min()) < 200 + 125


def test_equal_seeds_give_equal_pictures_and_others_do_not() -> None:
    """The sensor noise is the seed's, so that a demo repeats."""
    terrain, view = terrain_with_tower(0.0), looking_down()
    first, second, other = (render_view(terrain, view, noise_seed=seed) for seed in (1, 1, 2))

    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
