"""Holds a folder for one process: a lock that the kernel drops with it, however it ends.

Works between containers, where process ids say nothing. Does not cover the
nodes of a cluster, which share a store on purpose.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = "in-use.lock"
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""What file systems say that have no locks: some network shares."""


class FolderInUseError(Exception):
    """Another process holds the folder, or has removed it meanwhile."""


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a folder that exists for the time of the block.

    The lock's file stays: were it removed, two processes could hold one each.
    Where the file system has no locks the block runs without.

    Raises:
        FolderInUseError: somebody else holds it.
        OSError: the lock's file cannot be opened.
    """
    with _opened(folder, os.O_CREAT) as descriptor:
        try:
            _lock(folder, descriptor)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
        yield


@contextmanager
def seize(folder: Path) -> Iterator[None]:
    """Hold a folder that its owner has left, in order to remove it.

    Raises:
        FolderInUseError: its owner lives.
        OSError: it was never held, or cannot be.
    """
    # Nothing is created: its owner may be removing it right now.
    with _opened(folder, 0) as descriptor:
        _lock(folder, descriptor)
        yield


@contextmanager
def _opened(folder: Path, flags: int) -> Iterator[int]:
    # Closed in the processes we start: they must not hold it after us.
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderInUseError(f"{folder} is in use") from error
    try:
        is_still_there = os.path.samestat((folder / LOCK_NAME).stat(), os.fstat(descriptor))
    except FileNotFoundError:
        is_still_there = False
    if not is_still_there:
        raise FolderInUseError(f"{folder} was removed while it was being locked")
