"""Finds the files of a machine's other workers in their folder, at hardly any cost while nothing changes.

Does not read the files (:mod:`worker.machine`), nor tell whose are alive.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from worker.machine import SUFFIX

_SETTLED_NS = 1_000_000_000
"""The folder's time has the kernel's ticks, milliseconds apart: two changes may have the same one."""


class Neighbours:
    """The other files beside one's own; one thread at a time may ask, or several: each answer is right.

    The folder is listed again when its time of change differs, and until a
    second after that was first seen.
    """

    def __init__(self, own: Path, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._folder, self._own = own.parent, own.name
        self._now_ns = now_ns
        self._changed_at_ns: int | None = None
        """The folder's own time."""
        self._seen_at_ns = 0
        """When that was first seen, by our clock."""
        self._settled: tuple[str, ...] | None = None

    def names(self) -> tuple[str, ...]:
        """Return the names of the other workers' files.

        Raises:
            OSError: the folder cannot be read.
        """
        changed_at_ns, now_ns = self._folder.stat().st_mtime_ns, self._now_ns()
        if changed_at_ns != self._changed_at_ns:
            self._changed_at_ns, self._seen_at_ns, self._settled = changed_at_ns, now_ns, None
        if self._settled is not None:
            return self._settled
        listed = os.listdir(self._folder)  # noqa: PTH208 - names are enough; paths take three times as long
        names = tuple(name for name in listed if name.endswith(SUFFIX) and name != self._own)
        if now_ns - self._seen_at_ns > _SETTLED_NS:
            self._settled = names
        return names
