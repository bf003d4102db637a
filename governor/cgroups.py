"""Holds the cgroups that bound this process: their limits, what is left of them, their pressure and kills.

A container, a systemd slice and a batch system all set their limits there. The
folders are found once (:mod:`governor.cgroup_folders`); each reading then reads
few files (:mod:`governor.cgroup_files`). Limits only ever lower what there is.
Swap is never counted.
"""

import math
from collections.abc import Iterator
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
class _Limit:
    """A limit of one cgroup."""

    cgroup: str
    """As this process sees it; "/" is the top, in a container the container."""
    folder: Path

    @property
    def owner(self) -> str:
        """Return e.g. "this container" or "cgroup /user.slice"."""
        return "this container" if self.cgroup == "/" else f"cgroup {self.cgroup}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit(_Limit):
    """How much memory all processes in a cgroup may have together."""

    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuQuota(_Limit):
    """How many CPUs' time all processes in a cgroup may use together."""

    cpus: float

    @property
    def whole_cpus(self) -> int:
        """Return it rounded down, at least 1."""
        return max(1, math.floor(self.cpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was found when the process started, see :func:`find_limits`; the own cgroup's come first."""

    memory_folders: CgroupFolders | None = None
    memory_limits: tuple[MemoryLimit, ...] = ()
    cpu_quotas: tuple[CpuQuota, ...] = ()
    pressure_folder: Path | None = None
    """The own cgroup of version 2, where it is not the whole machine."""

    @property
    def memory_limit(self) -> MemoryLimit | None:
        """Return the smallest limit; None: there is none."""
        return min(self.memory_limits, key=lambda limit: limit.limit_bytes, default=None)

    @property
    def quota_cpus(self) -> int | None:
        """Return the smallest quota in whole CPUs; None: there is none."""
        return min((quota.whole_cpus for quota in self.cpu_quotas), default=None)


NO_LIMITS = Limits()


def find_limits(proc_root: Path) -> Limits:
    """Find the cgroups of this process and read their limits.

    No cgroups, or none that are mounted here, are no limits.

    Raises:
        ProfileError: a memory limit is there and cannot be read.
    """
    memory_folders = find_folders(proc_root, "memory")
    return Limits(
        memory_folders=memory_folders,
        memory_limits=() if memory_folders is None else tuple(_memory_limits(memory_folders)),
        cpu_quotas=tuple(_cpu_quotas(find_folders(proc_root, "cpu"))),
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
    limited = {limit.folder for limit in limits.memory_limits}
    left = (
        _left_of(folder, cgroups.version, must_be_readable=folder in limited) for folder in cgroups.folders
    )
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


def _memory_limits(cgroups: CgroupFolders) -> Iterator[MemoryLimit]:
    for folder in cgroups.folders:
        try:
            limit_bytes = read_memory_limit(folder, cgroups.version)
        except (OSError, ValueError) as error:
            msg = f"cannot read the memory limit of a cgroup: {error}"
            raise ProfileError(msg) from error
        if limit_bytes is not None:
            yield MemoryLimit(cgroup=cgroups.name_of(folder), folder=folder, limit_bytes=limit_bytes)


def _cpu_quotas(cgroups: CgroupFolders | None) -> Iterator[CpuQuota]:
    if cgroups is None:
        return
    for folder in cgroups.folders:
        cpus = read_cpu_quota(folder, cgroups.version)
        if cpus is not None:
            yield CpuQuota(cgroup=cgroups.name_of(folder), folder=folder, cpus=cpus)


def _pressure_folder(cgroups: CgroupFolders | None) -> Path | None:
    """Return the own cgroup, but not the hierarchy's true top: it tells what /proc/pressure does."""
    if cgroups is None:
        return None
    own = cgroups.folders[0]
    return own if (own / "cgroup.type").exists() else None


def _left_of(folder: Path, version: int, *, must_be_readable: bool) -> int | None:
    """Return what one cgroup leaves; None: it does not limit. A limit that was lifted counts no more."""
    try:
        if must_be_readable:
            folder.stat()  # A limit that cannot be found may be lifted, its cgroup may not be gone.
        limit_bytes = read_memory_limit(folder, version)
        if limit_bytes is None:
            return None
        used_bytes = read_memory_usage(folder, version) - read_reclaimable(folder, version)
    except (OSError, ValueError) as error:
        if not must_be_readable:
            return None
        msg = f"cannot read what cgroup {folder} leaves: {error}; start the worker again if it was moved"
        raise SnapshotError(msg) from error
    return max(0, limit_bytes - max(0, used_bytes))
