"""Looks, before a project is made, whether its photos say where they were taken: `spatial` needs it.

Reads headers only, up to the first photo that does. What a project makes of
the places is in :mod:`tasks.spatial`.
"""

from collections.abc import Iterable
from pathlib import Path

from tasks.containers import read_header
from tasks.end_markers import ContainerError
from tasks.errors import ProjectError
from tasks.exif import read_shot
from tasks.parameters import PairParameters
from tasks.photo_folder import find_photos
from tasks.regular_files import NotRegularError, open_regular


def check_places(photos: Path, parameters: PairParameters) -> str | None:
    """Return a warning where `spatial` is asked for and no photo has a GPS position; None if all is well.

    Raises:
        ProjectError: `spatial` alone is asked for, so that no photo would be matched; or no photos.
    """
    if "spatial" not in parameters.strategies:
        return None
    paths = [Path(source.path) for source in find_photos(photos)]
    if any_has_a_position(paths):
        return None
    others = sorted(parameters.strategies - {"spatial"})
    nobody = f"none of the {len(paths)} photos has a GPS position (latitude, longitude and altitude)"
    if not others:
        raise ProjectError(f"{nobody}, so spatial would match nothing; use --pairs auto or retrieval")
    return f"{nobody}: pairs come from {' and '.join(others)} alone"


def any_has_a_position(paths: Iterable[Path]) -> bool:
    """Tell whether any photo says where it was taken; what cannot be read says nothing."""
    return any(_has_a_position(path) for path in paths)


def _has_a_position(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            header = read_header(file, path.stat().st_size)
    except (ContainerError, NotRegularError, OSError):
        return False
    return read_shot(header.exif, header.width_px, header.height_px).gps is not None
