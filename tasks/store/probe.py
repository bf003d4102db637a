"""Decides whether a whole store can be worked on from this machine: there, the same, writable, with room.

What cannot be read or written while the store is well is a fault of a single
file. Where a network folder hangs, so does a probe: nothing may wait for it
that must go on. Does not decide what follows (:mod:`worker.store_health`).
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tasks.errors import StoreError
from tasks.store.identity import SameStore
from tasks.store.publication import (
    TEMPORARY_PREFIX,
    cause_of,
    sync_folder,
    write_bytes,
    write_durably,
)

_PROBE = b"can this be written?".ljust(64 * 1024)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CURES = {
    0: "mount the right one, or start the worker again if this is the right one",
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EROFS: "mount it so that it can be written",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
}
_MOUNT_IT = "mount its disk or share again"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFault:
    """Why a store cannot be worked on from this machine."""

    cause: str
    """One sentence without its full stop."""
    cure: str
    """What to do about it, as an imperative."""
    free_bytes: int | None = None
    """Where its disk is full: what was free all the same..."""
    total_bytes: int | None = None
    """...of how much."""


def find_fault(root: Path, store_id: str) -> StoreFault | None:
    """Write, sync, rename and delete a small file in the store; return why that failed, None = it did not.

    ``store_id`` is what the store must call itself; "" = not known.
    """
    try:
        SameStore(root, store_id).check()
        _write_in(root)
    except StoreError as error:
        return _fault(error, root)
    return None


def fault_behind(error: StoreError, root: Path, store_id: str) -> StoreFault | None:
    """Return the fault of the store that an error of a job comes from; None: a single file is at fault.

    A full disk is believed as it is: there may be room for a probe, and none for an artefact.
    """
    fault = find_fault(root, store_id)
    cause = error.__cause__
    if fault is None and isinstance(cause, OSError) and cause.errno in _FULL:
        return _fault(_unusable(root, cause), root)
    return fault


def _write_in(root: Path) -> None:
    try:
        if not root.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        _write_and_remove(*(root / f"{TEMPORARY_PREFIX}probe-{uuid4().hex}" for _ in range(2)))
    except OSError as error:
        raise _unusable(root, error) from error


def _unusable(root: Path, error: OSError) -> StoreError:
    told = StoreError(f"{root} cannot be used: {cause_of(error)}")
    told.__cause__ = error
    return told


def _write_and_remove(first: Path, second: Path) -> None:
    try:
        write_durably(first, lambda file: write_bytes(file, _PROBE))
        first.rename(second)
        sync_folder(second.parent)
    finally:
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)


def _fault(error: StoreError, root: Path) -> StoreFault:
    code = _errno(error)
    free_bytes, total_bytes = _room(root) if code in _FULL else (None, None)
    return StoreFault(
        cause=str(error),
        cure=_CURES.get(code, _MOUNT_IT),
        free_bytes=free_bytes,
        total_bytes=total_bytes,
    )


def _errno(error: StoreError) -> int:
    cause = error.__cause__
    return cause.errno or 0 if isinstance(cause, OSError) else 0


def _room(root: Path) -> tuple[int | None, int | None]:
    """Return the free bytes, as far as this user may have them, and all bytes of a store's disk."""
    try:
        room = os.statvfs(root)
    except OSError:
        return None, None
    return room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize


def free_bytes(root: Path) -> int | None:
    """Return what is free on the store's disk; None = it does not say."""
    return _room(root)[0]
