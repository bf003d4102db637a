"""Ends what a process has left behind: whatever was started below it, under whatever group or session.

Linux gives a dead process's children to its nearest living ancestor that has asked for them. So nothing
can leave the tree, and whoever sits on top finds all of it among its own children. Elsewhere, or without
a procfs, these are no-ops: then only a child's own process group ends with it.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TASKS = Path("/proc/self/task")
_LOOK_EVERY_SECONDS = 0.01


def adopt_orphans() -> None:
    """Become the parent of whatever is orphaned below this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """Return the children of this process, those that have ended but were not waited for among them."""
    # The kernel may leave one out while another ends, so it is asked twice.
    return _listed_children() | _listed_children()


def _listed_children() -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError):
                found.update(map(int, (task / "children").read_text("ascii").split()))
    return found


def has_children() -> bool:
    """Tell whether a child lives, and wait for those that have ended: one system call where there is none."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_all(pids: Collection[int]) -> set[int]:
    """Kill these children; return those that are ours to wait for.

    What runs as another user (a job has called sudo) is not: it is left alone.
    """
    killed = set()
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return killed


def end_children(spared: Collection[int] = (), *, within_seconds: float) -> bool:
    """Kill and wait for all children but the spared, and what comes down from them; tell whether all is gone.

    What the kernel cannot end (it waits for a dead disk) is waited for no longer than is said.
    """
    deadline = time.monotonic() + within_seconds
    while left := kill_all(children().difference(spared)):
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY_SECONDS)
    return True
