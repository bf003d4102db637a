"""Holds what a child process does about its own fate: die with its parent, be killed before it.

Linux has both in the kernel; elsewhere these are no-ops and the closed control
socket ends the children instead.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OOM_SCORE_ADJ = 500
"""Above the worker's own 0, so that the kernel takes a job before the node."""


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    The signal follows the forking *thread*; the parent must have forked from
    its main thread. Exits at once if the parent is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def volunteer_for_the_oom_killer() -> None:
    """Raise this process's oom_score_adj; raising needs no privilege."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))
    except OSError:
        return  # No procfs, or a sandbox forbids it: the node is then no worse off than any program.
