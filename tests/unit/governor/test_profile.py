"""Tests of the reading of what a node owns."""

import os
from pathlib import Path

import pytest

from governor.cgroups import find_limits
from governor.errors import ProfileError
from governor.profile import read_profile
from tests.unit.governor.builders import GIB, a_proc
from tests.unit.governor.cgroup_trees import a_v2_tree, v2_memory


def test_a_profile_holds_the_whole_machine(tmp_path: Path) -> None:
    """Without a partition the node owns all RAM and every CPU it may run on."""
    profile = read_profile(proc_root=a_proc(tmp_path))

    assert profile.memory_total_bytes == 16 * GIB
    assert profile.logical_cpus == len(os.sched_getaffinity(0))
    assert profile.page_size_bytes == os.sysconf("SC_PAGE_SIZE")
    assert (profile.architecture, profile.gpu) == (os.uname().machine, None)


@pytest.mark.parametrize(
    ("partition_bytes", "total_bytes"),
    [(1, 1), (16 * GIB - 1, 16 * GIB - 1), (16 * GIB, 16 * GIB), (16 * GIB + 1, 16 * GIB)],
)
def test_a_memory_partition_only_lowers(tmp_path: Path, partition_bytes: int, total_bytes: int) -> None:
    """A partition above the machine is the machine."""
    profile = read_profile(partition_memory_bytes=partition_bytes, proc_root=a_proc(tmp_path))

    assert profile.memory_total_bytes == total_bytes


def test_a_cpu_partition_only_lowers(tmp_path: Path) -> None:
    """One CPU is one CPU, a million is what the machine has."""
    root, available = a_proc(tmp_path), len(os.sched_getaffinity(0))

    assert read_profile(partition_cpus=1, proc_root=root).logical_cpus == 1
    assert read_profile(partition_cpus=10**6, proc_root=root).logical_cpus == available


def test_an_empty_partition_is_refused(tmp_path: Path) -> None:
    """Zero is no partition, of either resource."""
    root = a_proc(tmp_path)

    with pytest.raises(ProfileError, match="0 bytes of memory"):
        read_profile(partition_memory_bytes=0, proc_root=root)
    with pytest.raises(ProfileError, match="0 CPUs"):
        read_profile(partition_cpus=0, proc_root=root)


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal: lots\n"])
def test_an_unknown_total_is_an_error(tmp_path: Path, meminfo: str | None) -> None:
    """A node that does not know its RAM has no profile."""
    with pytest.raises(ProfileError, match="how much memory"):
        read_profile(proc_root=a_proc(tmp_path, meminfo=meminfo))


@pytest.mark.parametrize(
    ("partition_bytes", "total_bytes"), [(None, 2 * GIB), (GIB, GIB), (3 * GIB, 2 * GIB)]
)
def test_limits_lower_the_totals_below_a_partition_too(
    tmp_path: Path, partition_bytes: int | None, total_bytes: int
) -> None:
    """In a container of 2 GiB and half a CPU there is no more, whatever was asked for."""
    a_proc(tmp_path / "proc")
    root = a_v2_tree(tmp_path, {"": v2_memory(2 * GIB) | {"cpu.max": "50000 100000\n"}})
    profile = read_profile(partition_memory_bytes=partition_bytes, partition_cpus=2, proc_root=root)

    assert (profile.memory_total_bytes, profile.logical_cpus) == (total_bytes, 1)


def test_limits_that_were_found_are_not_looked_for_again(tmp_path: Path) -> None:
    """A node's profile and its snapshots go by the same cgroups."""
    limits = find_limits(a_v2_tree(tmp_path / "limits", {"": v2_memory(2 * GIB)}))

    assert read_profile(proc_root=a_proc(tmp_path / "proc"), limits=limits).memory_total_bytes == 2 * GIB


def test_a_limit_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """As the RAM itself is."""
    a_proc(tmp_path / "proc")

    with pytest.raises(ProfileError, match="memory limit"):
        read_profile(proc_root=a_v2_tree(tmp_path, {"": v2_memory("lots")}))
