"""Reads the files of /proc that the governor needs; knows their formats, nothing else.

The root is an argument, so that tests read a fake tree. A file that cannot be
read raises OSError, one that is malformed ValueError; the callers decide what
that means.
"""

import os
import re
from pathlib import Path

_KIB = 1024
_READ_BYTES = 64 * 1024
_MEMINFO_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE | re.ASCII)
_PSI_SOME_AVG10 = re.compile(r"^some avg10=(\d+(?:\.\d+)?) ", re.MULTILINE | re.ASCII)
_VMSTAT_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE | re.ASCII)
_VMSTAT_LINE = re.compile(r"^(pswpin|pswpout) (\d+)$", re.MULTILINE | re.ASCII)
_LOADAVG = re.compile(r"^(\d+\.\d+) (\d+\.\d+) (\d+\.\d+) ", re.ASCII)


def read_meminfo(proc_root: Path, *names: str) -> tuple[int, ...]:
    """Return the named lines of ``meminfo``, in bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: a name is missing or its line is malformed.
    """
    lines = dict(_MEMINFO_LINE.findall(read_text(proc_root / "meminfo")))
    missing = [name for name in names if name not in lines]
    if missing:
        msg = f"{proc_root / 'meminfo'} has no readable {', '.join(missing)}"
        raise ValueError(msg)
    return tuple(int(lines[name]) * _KIB for name in names)


def read_psi_percent(path: Path) -> float:
    """Return ``some avg10`` of a pressure file, within 0..100: ``pressure/cpu``, a cgroup's ``cpu.pressure``.

    Raises:
        OSError: the file cannot be read (a kernel without PSI refuses it).
        ValueError: the line is malformed or out of range.
    """
    found = _PSI_SOME_AVG10.search(read_text(path))
    if found is None:
        msg = f"{path} has no readable 'some avg10'"
        raise ValueError(msg)
    percent = float(found[1])
    if percent > 100.0:
        msg = f"{path} says {percent} %"
        raise ValueError(msg)
    return percent


def read_swapped_pages(proc_root: Path) -> tuple[int, int]:
    """Return ``pswpin`` and ``pswpout`` of ``vmstat``: pages since boot.

    Raises:
        OSError: the file cannot be read.
        ValueError: one of the two is missing or malformed.
    """
    path = proc_root / "vmstat"
    counters = dict(_VMSTAT_LINE.findall(read_text(path)))
    if len(counters) != 2:
        msg = f"{path} has no readable pswpin and pswpout"
        raise ValueError(msg)
    return int(counters["pswpin"]), int(counters["pswpout"])


def read_oom_kills(proc_root: Path) -> int:
    """Return how many processes of the machine the kernel has killed for want of memory since boot.

    Raises:
        OSError: the file cannot be read.
        ValueError: the line is missing (kernels before 4.13) or malformed.
    """
    path = proc_root / "vmstat"
    found = _VMSTAT_OOM_KILL.search(read_text(path))
    if found is None:
        msg = f"{path} has no readable oom_kill"
        raise ValueError(msg)
    return int(found[1])


def read_load_averages(proc_root: Path) -> tuple[float, float, float]:
    """Return the three load averages of ``loadavg``.

    Raises:
        OSError: the file cannot be read.
        ValueError: the line is malformed.
    """
    path = proc_root / "loadavg"
    found = _LOADAVG.match(read_text(path))
    if found is None:
        msg = f"{path} has no readable load averages"
        raise ValueError(msg)
    return float(found[1]), float(found[2]), float(found[3])


def read_text(path: Path) -> str:
    """Return the whole of a kernel's file; pathlib's way costs 8 us more (of 15)."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, _READ_BYTES), b"")).decode("ascii")
    finally:
        os.close(file)
