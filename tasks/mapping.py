"""Runs COLMAP's incremental mapper on a database and colours the points.

It knows no store: the caller brings the database and a folder of photos.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pycolmap

from tasks.parameters import ModelParameters

MIN_REGISTRATION_INLIERS = 15
"""As many as verify a pair. COLMAP's 30 leaves 2 of the 11 photos of `kermit` out, with nothing gained."""
_RANDOM_SEED = 1


def map_database(
    database: Path, photos: Path, workspace: Path, parameters: ModelParameters, threads: int
) -> list[pycolmap.Reconstruction]:
    """Return the models, the one with most registered images first, then by smallest image name.

    With one thread, equal databases give equal models, byte for byte. Images
    are found as ``photos``/<name>; one that cannot be read leaves its points
    black. ``workspace`` is an empty folder that the mapper may fill. Photos
    that do not connect give several models, or none.
    """
    with _quiet_colmap():
        models = pycolmap.incremental_mapping(
            database, photos, workspace, mapper_options(parameters, threads)
        )
        for model in models.values():
            # Not by the mapper itself, which would hold one photo per thread of the machine.
            model.extract_colors_for_all_images(photos, num_threads=1)
    return sorted(models.values(), key=lambda model: (-model.num_reg_images(), registered_names(model)[:1]))


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


@contextmanager
def _quiet_colmap() -> Iterator[None]:
    """Let COLMAP be silent: what it calls an error (no model) is a result here, told in words."""
    before = pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = int(pycolmap.logging.FATAL)
    try:
        yield
    finally:
        pycolmap.logging.minloglevel = before
