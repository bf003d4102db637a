"""Holds a memory cgroup of a test: a limit, the processes started in it, the kernel's own counters.

``with memory_cgroup(limit_bytes) as group: process = group.start([...])``. At
the end of the block whatever still runs in it is killed and it is removed. It
lies below the cgroup of this process, so it can only lower what that allows
(v2: below the nearest one that may have children with a limit). Works with v1
and v2; needs root. Does not cover reading limits (:mod:`governor`).
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")
_EMPTY_SECONDS = 30.0
_JOIN_AND_RUN = 'echo $$ > "$0" && exec "$@"'
"""A shell joins the cgroup and becomes the command: so nothing of it ever runs outside."""


class NoMemoryCgroupError(Exception):
    """No memory cgroup can be made here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What one version calls its files."""

    limit: str
    swap_limit: str
    usage: str
    peak: str
    events: str


_V1 = _Files(
    limit="memory.limit_in_bytes",
    swap_limit="memory.memsw.limit_in_bytes",
    usage="memory.usage_in_bytes",
    peak="memory.max_usage_in_bytes",
    events="memory.oom_control",
)
_V2 = _Files(
    limit="memory.max",
    swap_limit="memory.swap.max",
    usage="memory.current",
    peak="memory.peak",
    events="memory.events",
)


class MemoryCgroup:
    """One cgroup with a memory limit; made by :func:`memory_cgroup`."""

    def __init__(self, folder: Path, files: _Files, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._files = files

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """Start a command in it, with all that it will start; ``options`` are Popen's."""
        return subprocess.Popen(self.joined_by(command), **options)

    def joined_by(self, command: Sequence[str]) -> list[str]:
        """Return a command that joins it and then becomes ``command``."""
        return ["/bin/sh", "-c", _JOIN_AND_RUN, str(self.folder / "cgroup.procs"), *command]

    def kernel_kills(self) -> int:
        """Return how many of its processes the kernel has killed for want of memory."""
        lines = (self.folder / self._files.events).read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def usage_bytes(self) -> int:
        """Return what is charged to it now, page cache included."""
        return int((self.folder / self._files.usage).read_text("ascii"))

    def peak_bytes(self) -> int | None:
        """Return the most that was ever charged to it, page cache included; None: not told here."""
        try:
            return int((self.folder / self._files.peak).read_text("ascii"))
        except FileNotFoundError:
            return None

    def pids(self) -> list[int]:
        """Return the processes in it."""
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text("ascii").split()]

    def kill_all(self) -> None:
        """Kill its processes, those that are being born too, and wait until they are gone."""
        wait_until(self._is_empty_after_killing, f"{self.folder} is empty", deadline_seconds=_EMPTY_SECONDS)

    def _is_empty_after_killing(self) -> bool:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not self.pids()


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """Make a memory cgroup of ``limit_bytes`` (no swap) for the block; its processes end with it.

    Raises:
        NoMemoryCgroupError: there is no memory controller here, or no right to use it.
    """
    group = _made(limit_bytes)
    try:
        yield group
    finally:
        group.kill_all()
        _remove(group.folder)


@contextmanager
def memory_cgroup_or_skip(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """Do as :func:`memory_cgroup`; where none can be made, skip the test with the reason."""
    with ExitStack() as stack:
        try:
            group = stack.enter_context(memory_cgroup(limit_bytes))
        except NoMemoryCgroupError as error:
            pytest.skip(str(error))
        yield group


def _parent() -> tuple[Path, _Files]:
    """Return the folder in which a cgroup with a memory limit may be made."""
    paths = dict(_controllers_and_paths())
    if "memory" in paths:
        return _nearest(_ROOT / "memory", paths["memory"]), _V1
    if (_ROOT / "cgroup.controllers").exists():
        return _nearest_that_shares(_nearest(_ROOT, paths.get("", "/"))), _V2
    raise NoMemoryCgroupError("this system has no memory controller")


def _controllers_and_paths() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _nearest(root: Path, path: str) -> Path:
    """Return our own folder; in a container it may be mounted as the root itself."""
    own = root / path.lstrip("/")
    return own if own.is_dir() else root


def _nearest_that_shares(folder: Path) -> Path:
    """Return the nearest ancestor whose children have the memory controller (v2)."""
    for candidate in (folder, *folder.parents):
        control = candidate / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text("ascii").split():
            return candidate
    raise NoMemoryCgroupError(f"no cgroup above {folder} shares its memory controller out")


def _made(limit_bytes: int) -> MemoryCgroup:
    parent, files = _parent()
    folder = parent / f"tiepoint-test-{uuid4().hex[:12]}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoMemoryCgroupError(f"no cgroup can be made in {parent}: {error.strerror}") from error
    try:
        (folder / files.limit).write_text(str(limit_bytes), "ascii")
    except OSError as error:
        _remove(folder)
        raise NoMemoryCgroupError(f"{folder} takes no memory limit: {error.strerror}") from error
    with suppress(OSError):  # Not every kernel counts swap. v1 counts it with the memory, v2 by itself.
        (folder / files.swap_limit).write_text(str(limit_bytes if files is _V1 else 0), "ascii")
    return MemoryCgroup(folder, files, limit_bytes)


def _remove(folder: Path) -> None:
    """Remove an empty cgroup; a process that has just ended may still be counted."""

    def is_removed() -> bool:
        try:
            folder.rmdir()
        except OSError:
            return False
        return True

    wait_until(is_removed, f"{folder} can be removed", deadline_seconds=_EMPTY_SECONDS)
