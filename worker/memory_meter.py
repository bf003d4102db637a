"""Reads a child's memory: the peak of one batch above the warm child's baseline.

Does not cover GPU memory, nor the peak of a batch whose process died.
"""

import ctypes
import sys
from pathlib import Path

_PROC = Path("/proc/self")
NOISE_BYTES = 256 * 1024
"""Peaks of no-op batches measured 0 to 200 KiB (interpreter, buffers): not told from nothing."""
RETAINED_LIMIT_BYTES = 32 * 1024 * 1024
"""A child that keeps more than this above its baseline is replaced."""


class MemoryMeter:
    """Measures batch after batch in one child; for its main thread only."""

    def __init__(self) -> None:
        self._baseline_bytes = _resident_bytes("VmRSS")

    def grow_baseline(self, before_bytes: int) -> None:
        """Count what was loaded since ``before_bytes`` was read as part of the warm child."""
        trim_heap()
        self._baseline_bytes += max(0, _resident_bytes("VmRSS") - before_bytes)

    def resident_bytes(self) -> int:
        """Return what is resident now."""
        return _resident_bytes("VmRSS")

    def start(self) -> None:
        """Reset the kernel's peak mark of this process."""
        try:
            (_PROC / "clear_refs").write_text("5")
        except OSError:
            return  # Peaks then only ever rise, which errs to the safe side.

    def peak_bytes(self) -> int:
        """Return the peak above the baseline since :meth:`start`; 0 = unknown or within the noise."""
        peak = _resident_bytes("VmHWM") - self._baseline_bytes
        return peak if peak > NOISE_BYTES else 0

    def retains_too_much(self) -> bool:
        """Tell whether this child must be replaced, its heap trimmed already."""
        return _resident_bytes("VmRSS") - self._baseline_bytes > RETAINED_LIMIT_BYTES


def trim_heap() -> None:
    """Give freed heap pages back to the system (glibc only)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _resident_bytes(field: str) -> int:
    """Return VmRSS or VmHWM in bytes; 0 where there is no procfs."""
    try:
        status = (_PROC / "status").read_text("ascii")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
