"""Reads a child's memory: the peak of one batch above the warm child's baseline.

What counts is memory that only this process can have: anonymous and shared
pages. Pages of library files belong to the page cache, are shared by all
children and can be taken back; a forked child maps them as it first runs the
code, which is no need of the job. Does not cover GPU memory. The peak of a batch
whose process died is told by the kernel (:mod:`worker.spawner`).
"""

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache

_STATUS = "/proc/self/status"
_STATUS_BYTES = 16 * 1024
_CLEAR_REFS = "/proc/self/clear_refs"
NOISE_BYTES = 256 * 1024
"""Peaks of no-op batches measured 0 to 200 KiB (interpreter, buffers): not told from nothing."""
RETAINED_LIMIT_BYTES = 32 * 1024 * 1024
"""A child that keeps more than this above its baseline is replaced."""


class MemoryMeter:
    """Measures batch after batch in one child; for its main thread only.

    ``on_start`` is told the resident bytes, library pages too, with which each
    batch starts: whoever hears of the child's death takes them off its peak.
    """

    def __init__(self, on_start: Callable[[int], None] = lambda _: None) -> None:
        self._on_start = on_start
        self._resident_bytes = 0
        self._baseline_bytes = self._start_bytes = self._last_bytes = self._read()

    def grow_baseline(self, before_bytes: int) -> None:
        """Count what was loaded since :func:`private_bytes` gave ``before_bytes`` to the warm child."""
        trim_heap()
        self._baseline_bytes += max(0, self._read() - before_bytes)

    def start(self) -> None:
        """Reset the kernel's peak mark of this process.

        What was there at the last reading (at most RETAINED_LIMIT_BYTES above the baseline) is no
        need of this batch; admission has seen it as memory in use.
        """
        self._start_bytes = max(self._baseline_bytes, self._last_bytes)
        self._on_start(self._resident_bytes)
        try:
            _write(_CLEAR_REFS, b"5")
        except OSError:
            return  # Peaks then only ever rise, which errs to the safe side.

    def peak_bytes(self) -> int:
        """Return the peak since :meth:`start`, above what was there; 0 = unknown or within the noise.

        The kernel marks the peak of all resident pages. Library pages mapped
        during the batch stay mapped, so the amount at its end is taken off.
        """
        status = _status()
        peak = status.get("VmHWM", 0) - status.get("RssFile", 0) - self._start_bytes
        self._last_bytes, self._resident_bytes = _private_bytes(status), status.get("VmRSS", 0)
        return peak if peak > NOISE_BYTES else 0

    def trim(self) -> None:
        """Give back what the batch has freed, and read what is left."""
        trim_heap()
        self._last_bytes = self._read()

    def _read(self) -> int:
        status = _status()
        self._resident_bytes = status.get("VmRSS", 0)
        return _private_bytes(status)

    def retains_too_much(self) -> bool:
        """Tell whether this child kept so much, at the last reading, that it must be replaced."""
        return self._last_bytes - self._baseline_bytes > RETAINED_LIMIT_BYTES


def private_bytes() -> int:
    """Return the resident anonymous and shared memory of this process."""
    return _private_bytes(_status())


def _private_bytes(status: Mapping[str, int]) -> int:
    return status.get("VmRSS", 0) - status.get("RssFile", 0)


def trim_heap() -> None:
    """Give freed heap pages back to the system (glibc only)."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], object] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def _write(path: str, text: bytes) -> None:
    """Write a file of the kernel's by one call; pathlib's way takes many times as long."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def _status() -> dict[str, int]:
    """Return the memory figures of this process in bytes by the kernel's names; none without a procfs."""
    try:
        status = os.open(_STATUS, os.O_RDONLY)
    except OSError:
        return {}
    try:
        text = os.read(status, _STATUS_BYTES)
    finally:
        os.close(status)
    return {name: _bytes(text, name.encode()) for name in ("VmHWM", "VmRSS", "RssFile")}


def _bytes(status: bytes, name: bytes) -> int:
    """Return one figure; 0 where a kernel does not have it."""
    _, _, rest = status.partition(b"\n" + name + b":")
    return int(rest[: rest.find(b" kB")]) * 1024 if rest else 0
