"""Holds the cgroups that bound this process: their limits, what is left of them, their pressure and kills.

A container, a systemd slice and a batch system all set their limits there. The
folders are found once (:mod:`governor.cgroup_folders`); each reading then reads
few files (:mod:`governor.cgroup_files`). Limits only ever lower what there is.
Swap is never counted.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from governor.cgroup_files import (
    read_cpu_quota,
    read_memory_limit,
    read_memory_usage,
    read_oom_kills,
    read_reclaimable,
)
from governor.cgroup_folders import CgroupFolders, find_folders, find_unified_folders
from governor.errors import ProfileError, SnapshotError
from governor.procfs import read_psi_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """A limit and whose it is: the smallest of a process's own cgroup and all above it."""

    limit_bytes: int
    cgroup: str
    """As this process sees it; "/" is the top, in a container the container."""

    @property
    def owner(self) -> str:
        """Return e.g. "this container" or "cgroup /user.slice"."""
        return "this container" if self.cgroup == "/" else f"cgroup {self.cgroup}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was found when the process started; see :func:`find_limits`."""

    memory_folders: CgroupFolders | None = None
    limited_folders: frozenset[Path] = frozenset()
    """Those that had a memory limit then: from now on they must stay readable."""
    memory_limit: MemoryLimit | None = None
    cpu_quota: float | None = None
    """How many CPUs' time this process and its children may use; None is no quota."""
    pressure_folder: Path | None = None
    """The own cgroup of version 2, where it is not the whole machine."""

    @property
    def quota_cpus(self) -> int | None:
        """Return the quota in whole CPUs, at least 1."""
        return None if self.cpu_quota is None else max(1, math.floor(self.cpu_quota))


NO_LIMITS = Limits()


def find_limits(proc_root: Path) -> Limits:
    """Find the cgroups of this process and read their limits.

    No cgroups, or none that are mounted here, are no limits.

    Raises:
        ProfileError: a memory limit is there and cannot be read.
    """
    memory_folders = find_folders(proc_root, "memory")
    limits = {} if memory_folders is None else _memory_limits(memory_folders)
    return Limits(
        memory_folders=memory_folders,
        limited_folders=frozenset(limits),
        memory_limit=_smallest(memory_folders, limits),
        cpu_quota=_smallest_quota(find_folders(proc_root, "cpu")),
        pressure_folder=_pressure_folder(find_unified_folders(proc_root)),
    )


def read_memory_left(limits: Limits) -> int | None:
    """Return the least that any limit leaves, in bytes: limit - usage + page cache that can be dropped.

    None: nothing limits. Limits are read again each time, for they can be
    changed while processes run, and one can be set where there was none.

    Raises:
        SnapshotError: a cgroup that limited this process at its start cannot be
            read any more. What it leaves is unknown then, not endless.
    """
    cgroups = limits.memory_folders
    if cgroups is None:
        return None
    left = (_left_of(folder, cgroups.version, limits) for folder in cgroups.folders)
    return min((amount for amount in left if amount is not None), default=None)


def read_own_pressure(limits: Limits, resource: str) -> float | None:
    """Return ``some avg10`` of the own cgroup for "cpu", "memory" or "io"; None: it tells none."""
    if limits.pressure_folder is None:
        return None
    try:
        return read_psi_percent(limits.pressure_folder / f"{resource}.pressure")
    except (OSError, ValueError):
        return None


def oom_kills(limits: Limits) -> int | None:
    """Return how many processes of the own cgroup the kernel has killed for want of memory.

    Whatever ran out, the cgroup, one above it or the machine: the kernel counts
    at the cgroup of the victim. None: unknown, as at the top of version 2; there
    :func:`governor.procfs.read_oom_kills` counts for the whole machine.
    """
    cgroups = limits.memory_folders
    if cgroups is None:
        return None
    try:
        return read_oom_kills(cgroups.folders[0], cgroups.version)
    except (OSError, ValueError):
        return None


def _memory_limits(cgroups: CgroupFolders) -> dict[Path, int]:
    try:
        limits = {folder: read_memory_limit(folder, cgroups.version) for folder in cgroups.folders}
    except (OSError, ValueError) as error:
        msg = f"cannot read the memory limit of a cgroup: {error}"
        raise ProfileError(msg) from error
    return {folder: limit for folder, limit in limits.items() if limit is not None}


def _smallest(cgroups: CgroupFolders | None, limits: dict[Path, int]) -> MemoryLimit | None:
    if cgroups is None or not limits:
        return None
    folder = min(limits, key=lambda folder: limits[folder])
    return MemoryLimit(limit_bytes=limits[folder], cgroup=cgroups.name_of(folder))


def _smallest_quota(cgroups: CgroupFolders | None) -> float | None:
    if cgroups is None:
        return None
    quotas = (read_cpu_quota(folder, cgroups.version) for folder in cgroups.folders)
    return min((quota for quota in quotas if quota is not None), default=None)


def _pressure_folder(cgroups: CgroupFolders | None) -> Path | None:
    """Return the own cgroup, but not the hierarchy's true top: it tells what /proc/pressure does."""
    if cgroups is None:
        return None
    own = cgroups.folders[0]
    return own if (own / "cgroup.type").exists() else None


def _left_of(folder: Path, version: int, limits: Limits) -> int | None:
    """Return what one cgroup leaves; None: it does not limit. A limit that was lifted counts no more."""
    try:
        if folder in limits.limited_folders:
            folder.stat()  # A limit that cannot be found may be lifted, its cgroup may not be gone.
        limit_bytes = read_memory_limit(folder, version)
        if limit_bytes is None:
            return None
        used_bytes = read_memory_usage(folder, version) - read_reclaimable(folder, version)
    except (OSError, ValueError) as error:
        if folder not in limits.limited_folders:
            return None
        msg = f"cannot read what cgroup {folder} leaves: {error}; start the worker again if it was moved"
        raise SnapshotError(msg) from error
    return max(0, limit_bytes - max(0, used_bytes))
