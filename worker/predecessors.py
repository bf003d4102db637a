"""Finds the workers of this machine that are dead for certain: nobody needs to wait until their leases end.

The proof is the kernel's: a worker's file in the lock folder is locked until
its main process ends, and says what its lease is called. Believed are files of
our own user and queue only: in a folder that all may write to anybody can make
a file that names a living worker. Nor are copies believed, or what another
machine wrote: not every share tells of its locks. Does not give anything back
(:mod:`worker.caretaker`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from worker.machine import DEAD_SUFFIX, SUFFIX, Place, file_identity, parsed_partition

_FORGOTTEN_AFTER_NS = 3600 * 10**9
"""Longer than any lease: what a file of that age speaks of has been given back by others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """A dead worker of our machine, queue and user."""

    incarnation: str
    path: Path

    def forget(self) -> None:
        """Remove what it has left in the lock folder: it holds nothing any more."""
        with suppress(OSError):
            self.path.unlink()


def find_predecessors(place: Place) -> list[Predecessor]:
    """Return the dead beside a living worker that nobody has forgotten yet.

    Raises:
        OSError: the lock folder cannot be read.
    """
    found = []
    for path in place.path.parent.iterdir():
        if path.suffix in {SUFFIX, DEAD_SUFFIX} and path != place.path:
            with suppress(OSError), _opened(path) as descriptor:  # Just removed, another user's, or no file.
                incarnation = _dead_incarnation(place, descriptor)
                if incarnation:
                    found.append(Predecessor(incarnation=incarnation, path=path))
                elif path.suffix == DEAD_SUFFIX and _is_long_ago(place, descriptor):
                    path.unlink()
    return found


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _dead_incarnation(place: Place, descriptor: int) -> str:
    """Return what the lease of a file's dead worker is called; empty: it lives, or is no affair of ours."""
    if os.fstat(descriptor).st_uid != os.geteuid():
        return ""
    # Read before the lock is tried: what a file says was written under its lock. One that says nothing
    # may be locked next, and its worker must not find our lock there.
    partition = parsed_partition(descriptor)
    if partition is None or partition.queue != place.partition.queue:
        return ""
    is_dead = partition.file == file_identity(descriptor) and _is_unlocked(descriptor)
    return partition.incarnation if is_dead else ""


def _is_unlocked(descriptor: int) -> bool:
    """Tell whether nobody holds a file. Our lock is a shared one: who else looks, finds the same."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False  # It is held, or this file system cannot tell.
    return True


def _is_long_ago(place: Place, descriptor: int) -> bool:
    """Tell by the file system's own clock, which wrote both times."""
    started_ns = os.fstat(place.descriptor).st_ctime_ns
    return started_ns - os.fstat(descriptor).st_ctime_ns > _FORGOTTEN_AFTER_NS
