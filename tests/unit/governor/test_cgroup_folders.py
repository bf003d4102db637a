"""Tests of where a process's cgroups are found: on trees as machines and containers show them."""

from pathlib import Path

import pytest

from governor.cgroup_folders import find_folders, find_unified_folders
from tests.unit.governor.cgroup_trees import a_cgroup_proc, levels_at, mount_line


def a_mount(root: Path, *paths: str) -> Path:
    """Make the folders of a hierarchy; return its mount point."""
    levels_at(root, {path: {} for path in ("", *paths)})
    return root


def test_own_comes_first_and_the_mount_point_last(tmp_path: Path) -> None:
    """Every cgroup above may limit too, so each is a folder to read."""
    point = a_mount(tmp_path / "cgroup", "user.slice/session")
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mount_line(point), cgroup="0::/user.slice/session\n")
    found = find_folders(proc, "memory")

    assert found is not None
    assert (found.version, found.folders) == (
        2,
        (point / "user.slice" / "session", point / "user.slice", point),
    )
    assert [found.name_of(folder) for folder in found.folders] == ["/user.slice/session", "/user.slice", "/"]


@pytest.mark.parametrize(
    ("mount_root", "own"),
    [
        ("/", "/"),  # A cgroup namespace: the container sees itself as the top.
        ("/docker/7f3a", "/docker/7f3a"),  # None: paths are the host's, and the mount shows a part.
        ("/docker/7f3a", "/"),  # The mount is the host's, the path the namespace's.
        ("/", "/../elsewhere"),  # Joined from outside: our own cgroup is not to be seen.
        ("/", "/docker/7f3a"),  # The path is the host's, the mount the container's.
    ],
)
def test_a_container_is_the_top_of_what_it_sees(tmp_path: Path, mount_root: str, own: str) -> None:
    """Whichever way the runtime hides the host's part, the container's own files are read."""
    point = a_mount(tmp_path / "cgroup")
    mounts = mount_line(point, root=mount_root, controllers="memory")
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mounts, cgroup=f"4:memory:{own}\n0::/\n")
    found = find_folders(proc, "memory")

    assert found is not None
    assert (found.version, found.folders) == (1, (point,))


def test_a_root_that_is_only_a_prefix_of_the_name_is_another_cgroup(tmp_path: Path) -> None:
    """/docker/7f does not show /docker/7f3a."""
    wrong, right = a_mount(tmp_path / "wrong"), a_mount(tmp_path / "right", "docker/7f3a")
    mounts = mount_line(wrong, root="/docker/7f") + mount_line(right)
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mounts, cgroup="0::/docker/7f3a\n")
    found = find_folders(proc, "memory")

    assert found is not None
    assert found.folders[0] == right / "docker" / "7f3a"


def test_a_controller_of_version_1_is_not_looked_for_in_version_2(tmp_path: Path) -> None:
    """A hybrid machine has both; the memory's files are where the controller is."""
    memory = a_mount(tmp_path / "memory", "job")
    both = a_mount(tmp_path / "cpu,cpuacct")
    unified = a_mount(tmp_path / "unified", "job")
    mounts = (
        mount_line(both, controllers="cpu,cpuacct")
        + mount_line(memory, controllers="memory")
        + mount_line(unified)
    )
    cgroup = "5:cpu,cpuacct:/\n4:memory:/job\n0::/job\n"
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mounts, cgroup=cgroup)
    found = [find_folders(proc, "memory"), find_folders(proc, "cpu"), find_unified_folders(proc)]

    assert [None if each is None else (each.version, each.folders[0]) for each in found] == [
        (1, memory / "job"),
        (1, both),
        (2, unified / "job"),
    ]


def test_a_mount_point_may_hold_a_space(tmp_path: Path) -> None:
    """The kernel writes it as an octal number."""
    point = a_mount(tmp_path / "my cgroups", "a:b")
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mount_line(point), cgroup="0::/a:b\n")
    found = find_folders(proc, "memory")

    assert found is not None
    assert found.folders == (point / "a:b", point)


@pytest.mark.parametrize(
    ("mounts", "cgroup"),
    [
        ("", "0::/\n"),  # Not mounted here, as in many a sandbox.
        (mount_line("/nowhere"), "0::/\n"),
        (mount_line("/nowhere", controllers="cpuset"), "4:memory:/\n"),
        ("1 2 - cgroup2 cgroup rw\n", "0::/\n"),
        (mount_line("/"), "malformed\n"),
        (mount_line("/"), ""),
    ],
)
def test_what_cannot_be_found_is_none(tmp_path: Path, mounts: str, cgroup: str) -> None:
    """A system without cgroups looks the same, and has no limits."""
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mounts, cgroup=cgroup)

    assert find_folders(proc, "memory") is None
    assert find_unified_folders(proc) is None
    assert find_folders(tmp_path / "no proc", "memory") is None
