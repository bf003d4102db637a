"""Builds pictures that are nothing but keypoints, as no photo is.

The tiles were found by changing single pixels of random ones, for as long as
that led to more keypoints per pixel (docs/memory.md).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FULLEST_SIFT = ((255, 0, 0), (0, 255, 255), (0, 255, 255))
"""0.92 keypoints per pixel: one place in nine pixels, with eight orientations."""
FULLEST_ORB = ((255, 255, 255, 0, 255, 255), (255, 0, 255, 255, 255, 0))
"""A FAST corner in four pixels, the most there can be, all of equal response: none is dropped."""


def tiled(tile: Sequence[Sequence[int]], side_px: int) -> NDArray[np.uint8]:
    """Return a square picture of one tile repeated."""
    pixels = np.array(tile, dtype=np.uint8)
    rows, columns = (-(-side_px // side) for side in pixels.shape)
    return np.ascontiguousarray(np.tile(pixels, (rows, columns))[:side_px, :side_px])


def dots(side_px: int, step_px: int) -> NDArray[np.uint8]:
    """Return a square picture of single white pixels on black; a step of 6: 0.44 SIFT keypoints per pixel."""
    pixels = np.zeros((side_px, side_px), dtype=np.uint8)
    pixels[::step_px, ::step_px] = 255
    return pixels
