"""Finds the photos in a user's folder; whether each can be used is found at import.

A file counts by its name or by its first bytes: notes and thumbnails' databases
beside the photos are no failures, but a broken ``.jpg`` is one. Left alone are
hidden files and folders, pipes and devices, and the folders of other results.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from tasks.errors import ProjectError, StoreError
from tasks.regular_files import is_regular, open_regular
from tasks.store import Source, Store

_PHOTO_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".png", ".tif", ".tiff", ".webp", ".bmp"}
_PHONE_AND_RAW_SUFFIXES = {".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"}
_SUFFIXES = _PHOTO_SUFFIXES | _PHONE_AND_RAW_SUFFIXES
_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*")


def find_photos(folder: Path) -> tuple[Source, ...]:
    """Return the photos below a folder, sorted by name; a name is the path below the folder.

    A source's path is where the photo really is, so that import roots made of
    such paths cover photos that are links. Linked folders are followed; a
    folder that can be reached in several ways counts once, under its own name
    if it has one below ``folder``.

    Raises:
        ProjectError: there is no such folder, no photo in it, it holds a
            project, or a photo's name is not UTF-8.
    """
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise ProjectError(f"{folder} is not a folder; name the folder that holds the photos")
    if _is_store(root):
        raise ProjectError(f"{folder} holds a project; name the folder that holds the photos")
    photos = [path for path in _files(root) if _is_photo(path)]
    if not photos:
        raise ProjectError(f"there is no photo in {folder} (JPEG, PNG, TIFF, WebP or BMP)")
    _check_names([root, *(place for photo in photos for place in (photo.relative_to(root), photo.resolve()))])
    sources = (Source(name=path.relative_to(root).as_posix(), path=str(path.resolve())) for path in photos)
    return tuple(sorted(sources, key=lambda source: source.name))


def _tell_unreadable(error: OSError) -> None:
    """Refuse a folder that cannot be looked into: photos left out silently would be missed late."""
    raise ProjectError(
        f"cannot look into {error.filename}: {error.strerror}; make it readable, or move it away"
    )


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of every folder once, real folders before linked ones."""
    waiting = deque([root])
    seen: set[tuple[int, int]] = set()
    while waiting:
        for parent, folders, files in os.walk(waiting.popleft(), onerror=_tell_unreadable):
            here = Path(parent)
            if not _is_new(here, seen) or _is_store(here):
                folders.clear()
                continue
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            # os.walk does not enter links; one to a folder around the photos would lead out of them.
            linked = [here / name for name in folders if (here / name).is_symlink()]
            waiting.extend(link for link in linked if not root.is_relative_to(link.resolve()))
            yield from (here / name for name in files if not name.startswith("."))


def _is_new(folder: Path, seen: set[tuple[int, int]]) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False  # Gone since it was listed.
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return False
    seen.add(identity)
    return True


def _is_store(folder: Path) -> bool:
    """Tell whether a folder is a project's: its copies of the photos are no photos of the user."""
    try:
        return bool(Store(folder).project_ids())
    except StoreError:
        return False


def _is_photo(path: Path) -> bool:
    if path.suffix.lower() in _SUFFIXES:
        # A link into nothing is a photo that is missing, and told at import.
        return is_regular(path) or not path.exists()
    try:
        with open_regular(path) as file:
            return file.read(8).startswith(_STARTS)
    except OSError:
        return False  # Neither named like a photo nor readable: not ours.


def _check_names(places: list[Path]) -> None:
    """Refuse names that are not text: they cannot stand in a project, a report or an export."""
    for place in places:
        try:
            str(place).encode()
        except UnicodeEncodeError as error:
            shown = repr(os.fsencode(place)).removeprefix("b")
            raise ProjectError(f"the name {shown} is not valid UTF-8; rename it, then run again") from error
