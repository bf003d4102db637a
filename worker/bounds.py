"""Reads what bounds a worker that is about to start: its machine, and the limits of its cgroups.

Workers in several containers may share a lock folder: a limit then bounds only
those in its own cgroup, the machine all of them. Does not decide what fits
(:mod:`worker.partitions`).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from governor.cgroups import Limits, find_limits
from governor.errors import ProfileError
from governor.totals import Totals, read_totals
from worker.partitions import Machine
from worker.settings import WrongSettingError

_PROC_ROOT = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What bounds this process."""

    limits: Limits
    totals: Totals
    machine_cpus: int
    """All of the machine: another worker may have been given those that we may not run on."""

    def machines(self) -> Iterator[Machine]:
        """Yield each thing to be shared with whoever is bounded by it, the narrowest first."""
        physical_bytes = self.totals.physical_memory_bytes
        cpus = self.cpus(self.machine_cpus) or self.machine_cpus
        for limit in self.limits.memory_limits:
            memory_bytes = min(limit.limit_bytes, physical_bytes)
            yield Machine(memory_bytes=memory_bytes, cpus=cpus, name=limit.owner, cgroup=_key(limit.folder))
        for quota in self.limits.cpu_quotas:
            cpus = min(quota.whole_cpus, self.machine_cpus)
            yield Machine(memory_bytes=physical_bytes, cpus=cpus, name=quota.owner, cgroup=_key(quota.folder))
        yield Machine(memory_bytes=physical_bytes, cpus=self.machine_cpus)

    def memory_bytes(self, partition_bytes: int | None) -> int | None:
        """Return the part of the machine's memory that a worker takes; None: all of it."""
        limit = self.totals.memory_limit
        return _least(partition_bytes, None if limit is None else limit.limit_bytes)

    def cpus(self, partition_cpus: int | None) -> int | None:
        """Return the part of the machine's CPUs that a worker takes; None: all of them."""
        return _least(partition_cpus, self.limits.quota_cpus)

    def cgroups(self) -> tuple[str, ...]:
        """Return the keys of all cgroups that limit this process."""
        return tuple(_key(limit.folder) for limit in (*self.limits.memory_limits, *self.limits.cpu_quotas))

    def memory_cgroups(self) -> frozenset[str]:
        """Return the keys of those that limit its memory."""
        return frozenset(_key(limit.folder) for limit in self.limits.memory_limits)


def find_bounds() -> Bounds:
    """Read them.

    Raises:
        WrongSettingError: the memory, or a limit of it, cannot be read.
    """
    try:
        limits = find_limits(_PROC_ROOT)
        totals = read_totals(_PROC_ROOT, limits)
    except ProfileError as error:
        raise WrongSettingError(str(error)) from error
    return Bounds(limits=limits, totals=totals, machine_cpus=os.cpu_count() or 1)


def _key(folder: Path) -> str:
    """Return what names a cgroup in every container: its path differs, its number does not."""
    try:
        found = folder.stat()
    except OSError as error:
        raise WrongSettingError(f"cannot read the cgroup {folder}: {error.strerror or error}") from error
    return f"{found.st_dev}:{found.st_ino}"


def _least(*amounts: int | None) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)
