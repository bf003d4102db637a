"""Decides how much memory and how many threads the mapper is given.

Knows no store: :mod:`tasks.reconstruction` counts what there is to map.
"""

from dataclasses import dataclass, replace

from governor.model import Estimate

FIXED_BYTES = 48 << 20
"""COLMAP's and SQLite's buffers, image decoders, and what Python holds of a project."""
BYTES_PER_FEATURE = 128
"""COLMAP's keypoint and 2D point, and our copy while the database is written."""
BYTES_PER_PAIR = 2048
"""A two-view geometry with its three matrices, on both sides of the database."""
BYTES_PER_INLIER = 64
"""A correspondence, held both ways, in the database cache and in the graph."""
BYTES_PER_OBSERVATION = 1024
"""A residual of bundle adjustment with its Jacobian, and the observed point's track."""
BYTES_PER_IMAGE_PAIR = 576
"""A 6 x 6 block of float64 of the reduced camera matrix, and of its factor."""
MAX_DIRECT_IMAGES = 1000
"""From here on COLMAP solves iteratively and keeps no factor."""
BYTES_PER_PHOTO_PIXEL = 14
"""One photo at a time is decoded for the colours; 16 bits per channel take 12 bytes (measured)."""
REPEATABLE_MAX_OBSERVATIONS = 2_000_000
"""Up to here one thread maps in minutes, and gives the same bytes wherever it runs."""
MANY_THREADS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSize:
    """What there is to map.

    ``features`` may be an upper bound. ``inlier_matches`` counts those of all
    accepted pairs, ``largest_photo_px`` is width times height.
    """

    images: int = 0
    features: int = 0
    pairs: int = 0
    inlier_matches: int = 0
    largest_photo_px: int = 0

    @property
    def max_observations(self) -> int:
        """How many features can belong to points: each is matched, and each belongs to one point."""
        return min(self.features, 2 * self.inlier_matches)


def model_estimate(size: MappingSize) -> Estimate:
    """Return what mapping needs: the g of the specification, a sum of one term per kind of thing.

    Measured with pycolmap 4.2.1, one thread: 1,100 to 1,200 bytes per
    observation in all, between 20,000 and 240,000 observations.
    """
    direct_images = min(size.images, MAX_DIRECT_IMAGES)
    memory_bytes = (
        FIXED_BYTES
        + BYTES_PER_FEATURE * size.features
        + BYTES_PER_PAIR * size.pairs
        + BYTES_PER_INLIER * size.inlier_matches
        + BYTES_PER_OBSERVATION * size.max_observations
        + BYTES_PER_IMAGE_PAIR * direct_images**2
        + BYTES_PER_PHOTO_PIXEL * size.largest_photo_px
    )
    is_repeatable = size.max_observations <= REPEATABLE_MAX_OBSERVATIONS
    return Estimate(
        memory_fixed_bytes=memory_bytes, cpu_threads=1 if is_repeatable else MANY_THREADS, io_slots=1
    )


MODEL_FLOORS = (
    model_estimate(MappingSize()),
    replace(model_estimate(MappingSize()), cpu_threads=MANY_THREADS),
)
"""The least that mapping needs, for few observations and for many."""


WORKSPACE_FIXED_BYTES = 4 << 20
"""Empty tables, SQLite's shared index of its log."""
WORKSPACE_BYTES_PER_FEATURE = 96
"""A keypoint in the database and in its log, a 2D point in the models of two attempts; a fifth more."""
WORKSPACE_BYTES_PER_PAIR = 2048
WORKSPACE_BYTES_PER_INLIER = 24
WORKSPACE_BYTES_PER_OBSERVATION = 96
"""Its part of a point and of a track, in the models of two attempts."""


def workspace_bytes(size: MappingSize) -> int:
    """Return how much disk the mapper's folder may take: SQLite dies of a full one, which nothing can catch.

    (It maps the index of its log into memory; a page that the disk cannot give ends the process by SIGBUS.)
    """
    return (
        WORKSPACE_FIXED_BYTES
        + WORKSPACE_BYTES_PER_FEATURE * size.features
        + WORKSPACE_BYTES_PER_PAIR * size.pairs
        + WORKSPACE_BYTES_PER_INLIER * size.inlier_matches
        + WORKSPACE_BYTES_PER_OBSERVATION * size.max_observations
    )
