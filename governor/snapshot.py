"""Reads one snapshot of the machine: memory, swap, pressure, load, within the limits of this process.

Keeps nothing between two readings. How GPU memory is read is :mod:`governor.gpu`'s.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from governor.cgroups import NO_LIMITS, Limits, read_memory_left, read_own_pressure
from governor.errors import SnapshotError
from governor.model import Snapshot
from governor.procfs import read_load_averages, read_meminfo, read_psi_percent, read_swapped_pages

_Reading = TypeVar("_Reading")


def capture_snapshot(
    proc_root: Path,
    now_ns: Callable[[], int],
    read_gpu_available_bytes: Callable[[], int | None] = lambda: None,
    limits: Limits = NO_LIMITS,
) -> Snapshot:
    """Read the machine now, as far as ``limits`` leave it to this process.

    ``now_ns`` is CLOCK_MONOTONIC; it is asked after the mandatory reading and
    before the optional ones, so that a slow optional file makes the snapshot
    look older, not younger.

    Raises:
        SnapshotError: the memory, or a limit of it, cannot be read. Nothing may be reserved then.
    """
    memory_available_bytes, memory_free_bytes, swap_free_bytes = _read_memory(proc_root, limits)
    captured_at_ns = now_ns()
    swapped_pages = _known(lambda: read_swapped_pages(proc_root))
    swapped_in_pages, swapped_out_pages = swapped_pages or (None, None)
    return Snapshot(
        captured_at_ns=captured_at_ns,
        memory_available_bytes=memory_available_bytes,
        memory_free_bytes=memory_free_bytes,
        swap_free_bytes=swap_free_bytes,
        cpu_psi_percent=_pressure(proc_root, limits, "cpu"),
        memory_psi_percent=_pressure(proc_root, limits, "memory"),
        io_psi_percent=_pressure(proc_root, limits, "io"),
        swapped_in_pages=swapped_in_pages,
        swapped_out_pages=swapped_out_pages,
        gpu_memory_available_bytes=read_gpu_available_bytes(),
        load_averages=_known(lambda: read_load_averages(proc_root)),
    )


def read_available_memory_bytes(proc_root: Path, limits: Limits) -> int:
    """Return what a snapshot would call available, without the rest of it.

    Raises:
        SnapshotError: as of :func:`capture_snapshot`.
    """
    return _read_memory(proc_root, limits)[0]


def _read_memory(proc_root: Path, limits: Limits) -> tuple[int, int, int]:
    """Return what is available within the limits, and what is free of the machine's RAM and swap."""
    try:
        available_bytes, free_bytes, swap_free_bytes = read_meminfo(
            proc_root, "MemAvailable", "MemFree", "SwapFree"
        )
    except (OSError, ValueError) as error:
        msg = f"cannot read the machine's memory: {error}"
        raise SnapshotError(msg) from error
    left_bytes = read_memory_left(limits)
    return (
        available_bytes if left_bytes is None else min(available_bytes, left_bytes),
        free_bytes,
        swap_free_bytes,
    )


def _pressure(proc_root: Path, limits: Limits, resource: str) -> float | None:
    """Return the larger of the machine's reading and the own cgroup's, of those that are known."""
    of_machine = _known(lambda: read_psi_percent(proc_root / "pressure" / resource))
    readings = (of_machine, read_own_pressure(limits, resource))
    return max((reading for reading in readings if reading is not None), default=None)


def _known(read: Callable[[], _Reading]) -> _Reading | None:
    """Return an optional reading, or None: what is unknown creates no pressure."""
    try:
        return read()
    except (OSError, ValueError):
        return None
