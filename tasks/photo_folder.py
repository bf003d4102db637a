"""Finds the photos in a user's folder; whether each can be used is found at import.

A file counts by its name or by its first bytes: notes and thumbnails' databases
beside the photos are no failures, but a broken ``.jpg`` is one.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tasks.errors import ProjectError
from tasks.store import Source

_PHOTO_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".png", ".tif", ".tiff", ".webp", ".bmp"}
_PHONE_AND_RAW_SUFFIXES = {".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"}
_SUFFIXES = _PHOTO_SUFFIXES | _PHONE_AND_RAW_SUFFIXES
_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*")


def find_photos(folder: Path) -> tuple[Source, ...]:
    """Return the photos below a folder, sorted by name; a name is the path below the folder.

    Raises:
        ProjectError: there is no such folder, or no photo in it.
    """
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise ProjectError(f"{folder} is not a folder; name the folder that holds the photos")
    sources = tuple(
        sorted(
            (
                Source(name=path.relative_to(root).as_posix(), path=str(path))
                for path in _files(root)
                if _is_photo(path)
            ),
            key=lambda source: source.name,
        )
    )
    if not sources:
        raise ProjectError(f"there is no photo in {folder} (JPEG, PNG, TIFF, WebP or BMP)")
    return sources


def _files(root: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent) / name for name in files if not name.startswith("."))


def _is_photo(path: Path) -> bool:
    if path.suffix.lower() in _SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return file.read(8).startswith(_STARTS)
    except OSError:
        return False  # Neither named like a photo nor readable: not ours.
