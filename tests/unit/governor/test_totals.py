"""Tests of what there is for this process, and of what sets it."""

import os
from pathlib import Path

import pytest

from governor.cgroups import CpuQuota, Limits, MemoryLimit
from governor.totals import read_totals
from tests.unit.governor.builders import GIB, a_proc


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a /proc of a machine with 16 GiB."""
    return a_proc(tmp_path / "proc")


@pytest.mark.parametrize(("limit_bytes", "binds"), [(16 * GIB - 1, True), (16 * GIB, False)])
def test_a_limit_counts_below_what_the_machine_has(proc: Path, limit_bytes: int, *, binds: bool) -> None:
    """One that does not bind is not told either."""
    limit = MemoryLimit(limit_bytes=limit_bytes, cgroup="/", folder=proc)
    totals = read_totals(proc, Limits(memory_limits=(limit,)))

    assert totals.physical_memory_bytes == 16 * GIB
    assert totals.memory_bytes == limit_bytes
    assert totals.memory_limit == (limit if binds else None)


@pytest.mark.parametrize(
    ("quota", "quota_cpus", "cpus"), [(3.9, 3, 3), (4.0, None, 4), (0.1, 1, 1), (None, None, 4)]
)
def test_a_quota_counts_below_the_affinity(
    proc: Path,
    monkeypatch: pytest.MonkeyPatch,
    quota: float | None,
    quota_cpus: int | None,
    cpus: int,
) -> None:
    """Four CPUs may be run on; the quota says how many can be kept busy."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6})
    quotas = () if quota is None else (CpuQuota(cpus=quota, cgroup="/", folder=proc),)
    totals = read_totals(proc, Limits(cpu_quotas=quotas))

    assert (totals.affinity_cpus, totals.quota_cpus, totals.cpus) == (4, quota_cpus, cpus)


def test_without_limits_there_is_what_the_machine_has(proc: Path) -> None:
    """All RAM, and every CPU that this process may run on."""
    totals = read_totals(proc, Limits())

    assert (totals.memory_bytes, totals.memory_limit) == (16 * GIB, None)
    assert (totals.cpus, totals.quota_cpus) == (len(os.sched_getaffinity(0)), None)


@pytest.mark.parametrize(("cgroup", "owner"), [("/", "this container"), ("/a/b", "cgroup /a/b")])
def test_a_limit_has_an_owner(proc: Path, cgroup: str, owner: str) -> None:
    """People who have to raise it must know where it is."""
    assert MemoryLimit(limit_bytes=GIB, cgroup=cgroup, folder=proc).owner == owner
