"""Decides how a file or a folder appears in the store: whole and durable, or not at all.

Everything is written under a temporary name in the folder it is meant for,
fsynced, and then given its name without replacing what already has it: the
first one wins. A process killed in between leaves only a temporary, which
:func:`sweep_temporaries` removes later.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tasks.errors import CorruptArtefactError, StoreError

TEMPORARY_PREFIX = ".tmp-"

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "access is denied",
    errno.EPERM: "access is denied",
    errno.ENOENT: "it is gone",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.ESTALE: "the network folder has gone away",
    errno.EIO: "the disk reports an input/output error",
    errno.ETIMEDOUT: "the network folder does not answer",
    errno.EISDIR: "a folder is in its place",
    errno.ELOOP: "a link that leads nowhere is in its place",
}
_NO_FILE = {errno.EISDIR, errno.ELOOP}
# What file systems without hard links answer (FAT, some FUSE and SMB mounts).
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@contextmanager
def plain_store_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the path and the cause.

    Something else in a file's place is damage: it can be discarded.
    """
    try:
        yield
    except OSError as error:
        kind = CorruptArtefactError if error.errno in _NO_FILE else StoreError
        raise kind(f"cannot use {path} in the project store: {cause_of(error)}") from error


def cause_of(error: OSError) -> str:
    """Return an error of the system in words of ours."""
    return _CAUSES.get(error.errno or 0, error.strerror or str(error))


def make_folder(root: Path, folder: Path, check_root: Callable[[], None]) -> None:
    """Create ``folder`` and its missing parents below ``root``, durably.

    The root itself is never created here: an unmounted network folder must
    not be mistaken for an empty store. ``check_root`` is called before anything
    is created directly below it, and raises where it is not the store any more.
    """
    if folder == root:
        if not root.is_dir():
            raise StoreError(f"the project store {root} is gone")
        check_root()
        return
    if folder.is_dir():
        return
    make_folder(root, folder.parent, check_root)
    with suppress(FileExistsError):
        folder.mkdir()
        sync_folder(folder.parent)
    if not folder.is_dir():
        raise StoreError(f"{folder} in the project store is no folder; move it away")


def publish_file(target: Path, write: Callable[[BinaryIO], None]) -> bool:
    """Write a file and give it the name ``target``; return False when a file had the name.

    Anything else there (a folder, a link that leads nowhere) gives way.
    ``target``'s folder exists. The name is durable only after
    :func:`sync_folder`, which the caller does once for all names of a step.
    """
    temporary = _temporary_beside(target)
    try:
        write_durably(temporary, write)
        if _name_without_replacing(temporary, target):
            return True
        return _clear_the_way(target) and _name_without_replacing(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(target: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file and give it the name ``target``, whatever stood there before."""
    temporary = _temporary_beside(target)
    try:
        write_durably(temporary, write)
        _clear_the_way(target)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def publish_folder(target: Path, fill: Callable[[Path], None]) -> bool:
    """Fill a folder and give it the name ``target``; return False when the name was taken."""
    temporary = _temporary_beside(target)
    try:
        temporary.mkdir()
        fill(temporary)
        _sync_tree(temporary)
        return _rename_without_replacing(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_aside(path: Path) -> Path | None:
    """Take the name from a file or folder at one stroke; return where it went (a temporary)."""
    aside = _temporary_beside(path)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, at one stroke; gone is fine."""
    aside = move_aside(path)
    if aside is None:
        return
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside)
    else:
        aside.unlink()


def write_durably(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Create a file, fill it and wait until its bytes are on the disk."""
    with path.open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def write_bytes(file: BinaryIO, content: bytes) -> None:
    """Write bytes; what a publication of something small passes on."""
    file.write(content)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot fsync a folder; their rename is durable by itself.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def sweep_temporaries(root: Path, oldest_kept_ns: int) -> int:
    """Remove the temporaries that nobody has written to since then; return how many."""
    stale = [path for path in _temporaries_below(root) if _written_ns(path) < oldest_kept_ns]
    for path in stale:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(stale)


def _temporary_beside(target: Path) -> Path:
    return target.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"


def _clear_the_way(target: Path) -> bool:
    """Remove what stands in a file's place and is none; tell whether there was any."""
    if target.is_file() or not os.path.lexists(target):
        return False
    remove(target)
    return True


def _name_without_replacing(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_without_replacing(temporary, target)
    return True


def _rename_without_replacing(temporary: Path, target: Path) -> bool:
    # For files two writers can both pass this check and the later one wins;
    # a checksum that then disagrees is found on reading. Folders are exact:
    # a rename never replaces a folder that has content.
    if target.exists():
        return False
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            return False
        raise
    return True


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def _temporaries_below(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        temporary_folders = [name for name in subfolders if name.startswith(TEMPORARY_PREFIX)]
        subfolders[:] = [name for name in subfolders if not name.startswith(TEMPORARY_PREFIX)]
        for name in temporary_folders + [name for name in files if name.startswith(TEMPORARY_PREFIX)]:
            yield Path(folder, name)


def _written_ns(path: Path) -> int:
    """Return when the newest part of a temporary was written (wall clock); gone counts as now."""
    try:
        parts = [path, *path.rglob("*")] if path.is_dir() else [path]
        return max(part.stat().st_mtime_ns for part in parts)
    except FileNotFoundError:
        return 2**63
