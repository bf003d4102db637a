"""Reads what the node owns: CPUs, RAM, page size, architecture, less its partition.

Its GPU is found by :mod:`governor.gpu` and passed on here.
"""

import os
import platform
from pathlib import Path

from governor.errors import ProfileError
from governor.model import Gpu, HardwareProfile
from governor.procfs import read_meminfo


def read_profile(
    partition_memory_bytes: int | None = None,
    partition_cpus: int | None = None,
    proc_root: Path = Path("/proc"),
    gpu: Gpu | None = None,
) -> HardwareProfile:
    """Read the machine's totals; a partition lowers them, never raises them.

    CPUs are those that this process may run on, not all that are fitted.

    Raises:
        ProfileError: the RAM cannot be read, or a partition is below 1.
    """
    return HardwareProfile(
        logical_cpus=_within(partition_cpus, len(os.sched_getaffinity(0)), "CPUs"),
        memory_total_bytes=_within(
            partition_memory_bytes, read_machine_memory_bytes(proc_root), "bytes of memory"
        ),
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


def read_machine_memory_bytes(proc_root: Path) -> int:
    """Return the RAM of the machine, whatever part of it this node has.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        (total_bytes,) = read_meminfo(proc_root, "MemTotal")
    except (OSError, ValueError) as error:
        msg = f"cannot read how much memory the machine has: {error}"
        raise ProfileError(msg) from error
    return total_bytes
