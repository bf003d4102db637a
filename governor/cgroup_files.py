"""Reads the files of one cgroup, of either version; knows their formats, nothing else.

A file that cannot be read raises OSError, one that is malformed ValueError; the
callers decide what that means. Formats: the kernel's admin-guide/cgroup-v1/memory
and admin-guide/cgroup-v2.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from governor.procfs import read_text

_V1_LEAST_UNLIMITED_BYTES = 2**60
"""Version 1 writes "no limit" as the largest multiple of the page size below 2^63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFiles:
    """What a version calls the files and lines of its memory controller."""

    limits: tuple[str, ...]
    """The smallest one counts. Above ``memory.high`` processes are slowed down until they crawl."""
    usage: str
    kills: str
    reclaimable: tuple[str, ...]
    """Lines of ``memory.stat``: page cache, which the kernel drops when memory is asked for."""
    in_use: str
    """Line of ``memory.stat``: file pages that are mapped (code, above all), dropped only at a price."""


MEMORY_FILES = {
    1: MemoryFiles(
        limits=("memory.limit_in_bytes",),
        usage="memory.usage_in_bytes",
        kills="memory.oom_control",
        reclaimable=("total_inactive_file", "total_active_file"),
        in_use="total_mapped_file",
    ),
    2: MemoryFiles(
        limits=("memory.max", "memory.high"),
        usage="memory.current",
        kills="memory.events",
        reclaimable=("inactive_file", "active_file"),
        in_use="file_mapped",
    ),
}


def read_memory_limit(folder: Path, version: int) -> int | None:
    """Return a cgroup's own limit in bytes; None: it has none.

    A file that is not there is no limit: the top of a hierarchy has none.
    """
    found = [_read_limit(folder / name) for name in MEMORY_FILES[version].limits]
    return min((limit for limit in found if limit is not None), default=None)


def read_memory_usage(folder: Path, version: int) -> int:
    """Return what is charged to a cgroup and all below it, page cache included, in bytes."""
    return _number(folder / MEMORY_FILES[version].usage)


def read_reclaimable(folder: Path, version: int) -> int:
    """Return how much of the usage is page cache that nobody has mapped, in bytes."""
    files, lines = MEMORY_FILES[version], _lines(folder / "memory.stat")
    cached_bytes = sum(_value(lines, name) for name in files.reclaimable)
    return max(0, cached_bytes - _value(lines, files.in_use))


def read_oom_kills(folder: Path, version: int) -> int:
    """Return how many processes of a cgroup the kernel has killed for want of memory.

    Version 1 counts its own ones only, version 2 also those of all cgroups below.
    """
    return _value(_lines(folder / MEMORY_FILES[version].kills), "oom_kill")


def read_cpu_quota(folder: Path, version: int) -> float | None:
    """Return how many CPUs' time a cgroup may use; None: no quota, or not known."""
    try:
        quota, period = _quota_and_period(folder, version)
        return None if quota in {"max", "-1"} else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_and_period(folder: Path, version: int) -> list[str]:
    if version == 1:
        return [read_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    return read_text(folder / "cpu.max").split()


def _read_limit(path: Path) -> int | None:
    try:
        text = read_text(path).strip()
    except FileNotFoundError:
        return None
    if text == "max":
        return None
    limit_bytes = _natural(text, path)
    return limit_bytes if limit_bytes < _V1_LEAST_UNLIMITED_BYTES else None


def _number(path: Path) -> int:
    return _natural(read_text(path).strip(), path)


_NATURAL = re.compile(r"\d{1,20}", re.ASCII)


def _natural(text: str, path: Path) -> int:
    if _NATURAL.fullmatch(text) is None:
        msg = f"{path} holds no number: {text[:40]!r}"
        raise ValueError(msg)
    return int(text)


def _lines(path: Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in read_text(path).splitlines())


def _value(lines: dict[str, str], name: str) -> int:
    if name not in lines or _NATURAL.fullmatch(lines[name]) is None:
        msg = f"no readable {name}"
        raise ValueError(msg)
    return int(lines[name])
