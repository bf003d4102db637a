"""Decides how much memory and how many threads the mapper is given.

Knows no store: :mod:`tasks.reconstruction` counts what there is to map.
"""

from dataclasses import dataclass

from governor.model import Estimate

_FIXED_BYTES = 32 << 20
"""COLMAP's and SQLite's buffers, decoders, and what Python holds of a project."""
_BYTES_PER_FEATURE = 128
"""COLMAP's Point2D, its place in the correspondence graph, and our copy while writing."""
_BYTES_PER_PAIR = 2048
"""A two-view geometry with its three matrices, on both sides of the database."""
_BYTES_PER_INLIER = 2048
"""A correspondence both ways, and its share in bundle adjustment (about 900 bytes per observation)."""
_BYTES_PER_IMAGE_PAIR = 576
"""A 6 x 6 block of float64 of the reduced camera matrix, and of its factor."""
_MAX_DIRECT_IMAGES = 1000
"""From here on COLMAP solves iteratively and keeps no factor."""
_BYTES_PER_PHOTO_PIXEL = 12
_REPEATABLE_MAX_INLIERS = 2_000_000
_MANY_THREADS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSize:
    """What the mapper holds of a project; counts of everything that was matched, not only of what fits."""

    images: int = 0
    features: int = 0
    pairs: int = 0
    inlier_matches: int = 0
    largest_photo_px: int = 0


def model_estimate(size: MappingSize) -> Estimate:
    """Return what mapping a project of this size needs: the g of the specification."""
    direct_images = min(size.images, _MAX_DIRECT_IMAGES)
    memory_bytes = (
        _FIXED_BYTES
        + _BYTES_PER_FEATURE * size.features
        + _BYTES_PER_PAIR * size.pairs
        + _BYTES_PER_INLIER * size.inlier_matches
        + _BYTES_PER_IMAGE_PAIR * direct_images**2
        + _BYTES_PER_PHOTO_PIXEL * size.largest_photo_px
    )
    is_repeatable = size.inlier_matches <= _REPEATABLE_MAX_INLIERS
    return Estimate(
        memory_fixed_bytes=memory_bytes, cpu_threads=1 if is_repeatable else _MANY_THREADS, io_slots=1
    )
