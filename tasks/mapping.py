"""Runs COLMAP's incremental mapper on a database and colours the points.

It knows no store: the caller brings the database and a folder of photos.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pycolmap

from tasks.parameters import ModelParameters

MIN_REGISTRATION_INLIERS = 15
"""As many as verify a pair. COLMAP's 30 leaves 2 of the 11 photos of `kermit` out, with nothing gained."""
POOR_RATIO = 0.5
"""A largest model with fewer of the images than this calls for the second attempt."""
FORWARD_MIN_ANGLE_DEGREES = 4.0
_RANDOM_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedModels:
    """What the mapper made of a database."""

    models: tuple[pycolmap.Reconstruction, ...]
    """Most registered images first, then by smallest image name."""
    largest_part: int
    """Images in the largest part, models too small to count included."""

    @property
    def registered(self) -> int:
        """Return how many images are in any model."""
        return len({name for model in self.models for name in registered_names(model)})


def map_database(
    database: Path, photos: Path, workspace: Path, parameters: ModelParameters, threads: int
) -> MappedModels:
    """Return the models of a database; photos that do not connect give several, or none.

    With one thread, equal databases give equal models, byte for byte. Images
    are found as ``photos``/<name>; one that cannot be read leaves its points
    black. ``workspace`` is an empty folder that the mapper may fill.

    COLMAP's own rules come first. They refuse to start from a pair that moves
    along its line of sight, so a walk down a street gives nothing (29 photos
    of `opensfm_lund`: none; 27 by the second attempt, which may).
    """
    with _quiet_colmap():
        strict = _attempt(database, workspace / "strict", mapper_options(parameters, threads), parameters)
        mapped = strict
        if strict.largest_part < POOR_RATIO * _image_count(database):
            options = forward_motion_options(parameters, threads)
            mapped = max(
                strict,
                _attempt(database, workspace / "forward", options, parameters),
                key=lambda attempt: attempt.registered,
            )
        for model in mapped.models:
            # Not by the mapper itself, which would hold one photo per thread of the machine.
            model.extract_colors_for_all_images(photos, num_threads=1)
    return mapped


def registered_names(model: pycolmap.Reconstruction) -> list[str]:
    """Return the names of the images that have a pose, sorted."""
    return sorted(model.image(image_id).name for image_id in model.reg_image_ids())


def mapper_options(parameters: ModelParameters, threads: int) -> pycolmap.IncrementalPipelineOptions:
    """Return COLMAP's defaults but for sizes, a fixed seed and the granted threads."""
    options = pycolmap.IncrementalPipelineOptions()
    options.min_model_size = parameters.min_model_size
    options.ignore_watermarks = True
    options.extract_colors = False
    options.mapper.abs_pose_min_num_inliers = MIN_REGISTRATION_INLIERS
    options.num_threads = threads
    options.mapper.num_threads = threads
    for part in (options, options.mapper, options.triangulation):
        part.random_seed = _RANDOM_SEED
    return options


def forward_motion_options(parameters: ModelParameters, threads: int) -> pycolmap.IncrementalPipelineOptions:
    """Return options under which cameras that move along their line of sight give a model.

    Points seen by two images only count too: down a street there are few others.
    """
    options = mapper_options(parameters, threads)
    options.mapper.init_max_forward_motion = 1.0
    options.mapper.init_min_tri_angle = FORWARD_MIN_ANGLE_DEGREES
    options.triangulation.ignore_two_view_tracks = False
    return options


def _attempt(
    database: Path,
    workspace: Path,
    options: pycolmap.IncrementalPipelineOptions,
    parameters: ModelParameters,
) -> MappedModels:
    workspace.mkdir()
    parts = pycolmap.incremental_mapping(database, workspace, workspace, options).values()
    # COLMAP itself keeps a smaller model where it holds 80 % of the images.
    models = [part for part in parts if part.num_reg_images() >= parameters.min_model_size]
    models.sort(key=lambda model: (-model.num_reg_images(), registered_names(model)))
    return MappedModels(
        models=tuple(models), largest_part=max((part.num_reg_images() for part in parts), default=0)
    )


def _image_count(database: Path) -> int:
    with pycolmap.Database.open(database) as opened:
        return int(opened.num_images())


@contextmanager
def _quiet_colmap() -> Iterator[None]:
    """Let COLMAP be silent: what it calls an error (no model) is a result here, told in words."""
    before = pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = int(pycolmap.logging.FATAL)
    try:
        yield
    finally:
        pycolmap.logging.minloglevel = before
