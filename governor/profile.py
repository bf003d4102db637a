"""Reads what the node owns: CPUs, RAM, page size, architecture, within its limits, less its partition.

Its GPU is found by :mod:`governor.gpu` and passed on here.
"""

import os
import platform
from pathlib import Path

from governor.cgroups import Limits, find_limits
from governor.errors import ProfileError
from governor.model import Gpu, HardwareProfile
from governor.totals import read_totals


def read_profile(
    partition_memory_bytes: int | None = None,
    partition_cpus: int | None = None,
    proc_root: Path = Path("/proc"),
    gpu: Gpu | None = None,
    limits: Limits | None = None,
) -> HardwareProfile:
    """Read the machine's totals; limits and a partition lower them, never raise them.

    CPUs are those that this process may run on, not all that are fitted.
    Without ``limits`` those of this process are looked for.

    Raises:
        ProfileError: the RAM or a limit of it cannot be read, or a partition is below 1.
    """
    totals = read_totals(proc_root, find_limits(proc_root) if limits is None else limits)
    return HardwareProfile(
        logical_cpus=_within(partition_cpus, totals.cpus, "CPUs"),
        memory_total_bytes=_within(partition_memory_bytes, totals.memory_bytes, "bytes of memory"),
        page_size_bytes=os.sysconf("SC_PAGE_SIZE"),
        architecture=platform.machine(),
        gpu=gpu,
    )


def _within(partition: int | None, total: int, what: str) -> int:
    if partition is None:
        return total
    if partition < 1:
        msg = f"a partition of {partition} {what} is no partition"
        raise ProfileError(msg)
    return min(partition, total)
