"""Reads how much memory and how many CPUs this process may use, and what sets the bounds.

A worker's partition comes on top of it (:mod:`governor.profile`).
"""

import os
from dataclasses import dataclass
from pathlib import Path

from governor.cgroups import Limits, MemoryLimit
from governor.errors import ProfileError
from governor.procfs import read_meminfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the machine has, and what limits lower it to."""

    physical_memory_bytes: int
    memory_limit: MemoryLimit | None
    """None: no cgroup limits the memory, or none to less than there is."""
    affinity_cpus: int
    """Those that this process may run on (taskset, cpuset)."""
    quota_cpus: int | None
    """Whole CPUs' time that its cgroups allow; None: no quota, or none below the affinity."""

    @property
    def memory_bytes(self) -> int:
        """Return the memory that there can ever be for this process."""
        return self.physical_memory_bytes if self.memory_limit is None else self.memory_limit.limit_bytes

    @property
    def cpus(self) -> int:
        """Return how many CPUs this process can keep busy."""
        return self.affinity_cpus if self.quota_cpus is None else self.quota_cpus


def read_totals(proc_root: Path, limits: Limits) -> Totals:
    """Read the totals of this process.

    Raises:
        ProfileError: the machine's memory cannot be read.
    """
    physical_bytes = read_physical_memory_bytes(proc_root)
    affinity_cpus = len(os.sched_getaffinity(0))
    limit, quota = limits.memory_limit, limits.quota_cpus
    return Totals(
        physical_memory_bytes=physical_bytes,
        memory_limit=None if limit is None or limit.limit_bytes >= physical_bytes else limit,
        affinity_cpus=affinity_cpus,
        quota_cpus=None if quota is None or quota >= affinity_cpus else quota,
    )


def read_physical_memory_bytes(proc_root: Path) -> int:
    """Return the RAM of the machine, whatever part of it is for us.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        (total_bytes,) = read_meminfo(proc_root, "MemTotal")
    except (OSError, ValueError) as error:
        msg = f"cannot read how much memory the machine has: {error}"
        raise ProfileError(msg) from error
    return total_bytes
