"""Tests of the look at how full of keypoints a picture is."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.decoding import Gray
from tasks.keypoint_density import sampled_keypoints_per_pixel
from tasks.parameters import Extractor
from tests.unit.tasks.keypoint_patterns import FULLEST_ORB, FULLEST_SIFT, dots, tiled
from tests.unit.tasks.photo_builders import textured


def half(pattern: Gray) -> NDArray[np.uint8]:
    """Return a pattern whose right half is flat."""
    pixels = pattern.copy()
    pixels[:, pattern.shape[1] // 2 :] = 128
    return pixels


@pytest.mark.parametrize(
    ("extractor", "pixels", "least", "most"),
    [
        ("sift", dots(1200, 6), 0.4, 0.7),
        ("sift", half(dots(1200, 6)), 0.2, 0.4),
        ("rootsift", tiled(FULLEST_SIFT, 1000), 0.9, 1.2),
        ("orb", tiled(FULLEST_ORB, 1000), 0.25, 0.36),
        ("sift", textured(1200, 900), 0.005, 0.04),
        ("orb", np.full((900, 900), 7, dtype=np.uint8), 0.0, 0.0),
    ],
)
def test_the_density_follows_the_picture(
    extractor: Extractor, pixels: Gray, least: float, most: float
) -> None:
    """Patterns are told from photos, and half a pattern counts half."""
    density = sampled_keypoints_per_pixel(pixels, extractor)

    assert least <= density <= most


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (95, 96), (97, 2000)])
@pytest.mark.parametrize("extractor", ["orb", "sift"])
def test_pictures_smaller_than_a_tile_have_a_density(extractor: Extractor, shape: tuple[int, int]) -> None:
    """Neither a line nor a single pixel is an error."""
    assert sampled_keypoints_per_pixel(np.zeros(shape, dtype=np.uint8), extractor) == 0.0
