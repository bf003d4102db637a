"""Tests of the mapper's attempts: rows of cameras that look sideways, forward, or at two scenes."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.colmap_database import DatabaseImage, DatabasePair, write_database
from tasks.mapping import MappedModels, map_database, registered_names
from tasks.parameters import ModelParameters
from tasks.store import Camera
from tasks.two_view import TwoViewConfig

FOCAL_PX, WIDTH_PX, HEIGHT_PX = 900.0, 1200, 900
POINTS = 300
SIDEWAYS, FORWARD = (0.8, 0.0, 0.0), (0.0, 0.0, 0.6)


def camera() -> Camera:
    """Build the one camera of all images."""
    return Camera(
        make="",
        model="",
        focal_length_px=FOCAL_PX,
        focal_is_prior=True,
        width_px=WIDTH_PX,
        height_px=HEIGHT_PX,
    )


def scene_points(seed: int) -> NDArray[np.float64]:
    """Build points in front of the cameras, at depths of 6 to 14."""
    return np.random.default_rng(seed).uniform((-3, -2.5, 6), (3, 2.5, 14), (POINTS, 3))


def images_of(first_id: int, count: int, step: tuple[float, float, float], seed: int) -> list[DatabaseImage]:
    """Build images that see all points of one scene; feature f is point f."""
    images = []
    for number in range(count):
        seen = scene_points(seed) - np.multiply(number - (count - 1) / 2, step)
        pixels = seen[:, :2] / seen[:, 2:] * FOCAL_PX + ((WIDTH_PX - 1) / 2, (HEIGHT_PX - 1) / 2)
        keypoints = np.column_stack((pixels, np.full((POINTS, 2), 4.0))).astype(np.float32)
        image_id = first_id + number
        images.append(
            DatabaseImage(image_id=image_id, name=f"{image_id:03}.jpg", camera=camera(), keypoints=keypoints)
        )
    return images


def all_pairs(images: list[DatabaseImage], matches: int = POINTS) -> list[DatabasePair]:
    """Pair all images with their first ``matches`` features."""
    same = np.repeat(np.arange(matches, dtype=np.uint32)[:, None], 2, axis=1)
    return [
        DatabasePair(
            left_id=left.image_id,
            right_id=right.image_id,
            matches=same,
            inliers=same,
            config=TwoViewConfig.CALIBRATED,
        )
        for position, left in enumerate(images)
        for right in images[position + 1 :]
    ]


def mapped(folder: Path, images: list[DatabaseImage], pairs: list[DatabasePair]) -> MappedModels:
    """Write the database and map it with default parameters."""
    (folder / "work").mkdir()
    write_database(folder / "database.db", images, pairs)
    return map_database(folder / "database.db", folder, folder / "work", ModelParameters(), threads=1)


def test_two_scenes_give_two_models_the_larger_first(tmp_path: Path) -> None:
    """Models are ordered by what they hold, not by when they were found."""
    small, large = images_of(1, 4, SIDEWAYS, seed=1), images_of(5, 6, SIDEWAYS, seed=2)

    result = mapped(tmp_path, small + large, all_pairs(small) + all_pairs(large))

    names = [registered_names(model) for model in result.models]
    assert names == [[image.name for image in large], [image.name for image in small]]
    assert result.registered == 10


def test_models_of_equal_size_are_ordered_by_name(tmp_path: Path) -> None:
    """The tie is broken by the smallest image name."""
    second, first = images_of(5, 4, SIDEWAYS, seed=1), images_of(1, 4, SIDEWAYS, seed=2)

    result = mapped(tmp_path, first + second, all_pairs(second) + all_pairs(first))

    assert [registered_names(model)[0] for model in result.models] == ["001.jpg", "005.jpg"]


def test_a_walk_straight_ahead_gives_a_model(tmp_path: Path) -> None:
    """Cameras that move along their line of sight are mapped by the second attempt."""
    images = images_of(1, 6, FORWARD, seed=1)

    result = mapped(tmp_path, images, all_pairs(images))

    assert result.registered == len(images)
    assert result.models[0].compute_mean_reprojection_error() < 1e-2


@pytest.mark.parametrize(("matches", "registered"), [(14, 4), (15, 5)])
def test_fifteen_matches_tie_a_photo_to_a_model(tmp_path: Path, matches: int, registered: int) -> None:
    """An image that shares 15 points with the others is registered, with 14 it is not."""
    images = images_of(1, 5, SIDEWAYS, seed=1)
    core, last = images[:4], images[4]
    weak = [
        pair for pair in all_pairs([*core, last], matches) if last.image_id in (pair.left_id, pair.right_id)
    ]

    result = mapped(tmp_path, images, all_pairs(core) + weak)

    assert result.registered == registered


def test_nothing_to_map_gives_no_model(tmp_path: Path) -> None:
    """Images without pairs, and no images at all, are no error."""
    images = images_of(1, 3, SIDEWAYS, seed=1)
    (tmp_path / "empty").mkdir()

    assert mapped(tmp_path, images, []).models == ()
    assert mapped(tmp_path / "empty", [], []).largest_part == 0
