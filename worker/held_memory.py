"""Reads how much memory the jobs of this node hold now: what its children have above their least.

Counts private pages only, as a batch's peak does (:mod:`worker.memory_meter`);
a child's least is what it had when it was last seen idle, or the smallest seen
since: what a kind loads once (an OpenCL driver) stays, and is no job's.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HeldMemory:
    """What the children of a node hold; one thread at a time."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._proc_root = proc_root
        self._least_bytes: dict[int, int] = {}
        self.child_pids: Callable[[], Iterable[int]] = tuple
        """Set by the pool."""
        self.idle_pids: Callable[[], Iterable[int]] = tuple
        """Those of them that have no batch; set by the pool."""

    def read_bytes(self) -> int:
        """Return what all children hold above their least."""
        # Before any is read: one that gets a batch meanwhile is told to hold less, never more.
        idle = set(self.idle_pids())
        now_bytes = {pid: private for pid in self.child_pids() if (private := self._private_bytes(pid))}
        self._least_bytes = {
            pid: now if pid in idle else min(now, self._least_bytes.get(pid, now))
            for pid, now in now_bytes.items()
        }
        return sum(now - self._least_bytes[pid] for pid, now in now_bytes.items())

    def _private_bytes(self, pid: int) -> int:
        """Return the resident pages that are no file's; 0 for a child that has ended."""
        try:
            _, resident, shared, *_ = (self._proc_root / str(pid) / "statm").read_text("ascii").split()
        except (OSError, ValueError):
            return 0
        return max(0, int(resident) - int(shared)) * _PAGE_BYTES
