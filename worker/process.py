"""Holds what a child process does about its own fate: die with its parent, be killed before it, leave a note.

Linux has both in the kernel; elsewhere these are no-ops and the closed control
socket ends the children instead.
"""

import ctypes
import mmap
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OOM_SCORE_ADJ = Path("/proc/self/oom_score_adj")
_MORE_THAN_THE_WORKER = 500
"""So much of its memory limit, in permille, a job is ahead of the node when the kernel chooses."""
_MOST_OOM_SCORE_ADJ = 1000
_NOTE_BYTES = 8


def die_with_parent(parent_pid: int, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to kill this process, or to send it another signal, when its parent ends.

    The signal follows the forking *thread*; the parent must have forked from
    its main thread. Exits at once if the parent is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        os._exit(1)


def signal_name(number: int) -> str:
    """Return e.g. "SIGKILL"; most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def volunteer_for_the_oom_killer() -> None:
    """Raise this process's oom_score_adj above its parent's; raising needs no privilege.

    Relative to what it has inherited: where a container gives all its
    processes 900, a fixed 500 would put the node before its jobs.
    """
    try:
        inherited = int(_OOM_SCORE_ADJ.read_text())
        _OOM_SCORE_ADJ.write_text(str(raised_oom_score_adj(inherited)))
    except OSError:
        return  # No procfs, or a sandbox forbids it: the node is then no worse off than any program.


def raised_oom_score_adj(inherited: int) -> int:
    """Return the oom_score_adj of a job whose node has the inherited one."""
    return min(inherited + _MORE_THAN_THE_WORKER, _MOST_OOM_SCORE_ADJ)


class Note:
    """One amount that a child writes and its parent reads, also when the child is dead.

    Made before the fork. Memory that both share, because a child that the
    kernel kills says nothing any more.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)

    def write(self, amount: int) -> None:
        """Replace the amount."""
        self._memory[:] = amount.to_bytes(_NOTE_BYTES, "little")

    def read(self) -> int:
        """Return the amount; 0 = none was written."""
        return int.from_bytes(self._memory[:], "little")

    def close(self) -> None:
        """Give the memory back; the parent's part."""
        self._memory.close()
