"""Tests of the reading of what a node owns."""

import os
from pathlib import Path

import pytest

from governor.errors import ProfileError
from governor.profile import read_profile
from tests.unit.governor.builders import GIB, a_proc


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
