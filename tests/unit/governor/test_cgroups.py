"""Tests of the limits of cgroups: on trees of real files, both versions."""

import shutil
from pathlib import Path

import pytest

from governor.cgroups import (
    NO_LIMITS,
    find_limits,
    oom_kills,
    read_memory_left,
    read_own_pressure,
)
from governor.errors import ProfileError, SnapshotError
from tests.unit.governor.cgroup_trees import (
    GIB,
    V1_UNLIMITED,
    a_cgroup_proc,
    a_v1_tree,
    a_v2_tree,
    levels_at,
    mount_line,
    pressure,
    v1_memory,
    v2_memory,
)


def limit_of(proc: Path) -> tuple[int, str] | None:
    """Return the smallest limit and whose it is."""
    limit = find_limits(proc).memory_limit
    return None if limit is None else (limit.limit_bytes, limit.owner)


@pytest.mark.parametrize(("own", "above"), [(2, 3), (3, 2)])
def test_the_smallest_limit_of_all_above_counts(tmp_path: Path, own: int, above: int) -> None:
    """Whoever set it: the process, its slice or the machine's owner."""
    levels = {
        "": {},
        "slice": v2_memory(above * GIB),
        "slice/between": v2_memory(),
        "slice/between/job": v2_memory(own * GIB),
    }
    proc = a_v2_tree(tmp_path, levels, own="/slice/between/job")

    owner = "cgroup /slice/between/job" if own < above else "cgroup /slice"
    assert limit_of(proc) == (2 * GIB, owner)


def test_a_limit_at_the_top_is_the_containers(tmp_path: Path) -> None:
    """The top of what a container sees is the container; the true top has no limit file."""
    assert limit_of(a_v2_tree(tmp_path, {"": v2_memory(GIB)})) == (GIB, "this container")


def test_slowing_down_is_a_limit_too(tmp_path: Path) -> None:
    """Above memory.high a process crawls: a worker must stay below it."""
    proc = a_v2_tree(tmp_path, {"": v2_memory(2 * GIB) | {"memory.high": f"{GIB}\n"}})

    assert limit_of(proc) == (GIB, "this container")


@pytest.mark.parametrize(
    ("written", "limit_bytes"),
    [(V1_UNLIMITED, None), (str(2**60), None), (str(2**60 - 1), 2**60 - 1), ("0\n", 0)],
)
def test_a_huge_limit_of_version_1_is_none(tmp_path: Path, written: str, limit_bytes: int | None) -> None:
    """It has no word for it; nobody limits a process to an exbibyte."""
    limit = find_limits(a_v1_tree(tmp_path, {"": v1_memory(written)})).memory_limit

    assert (None if limit is None else limit.limit_bytes) == limit_bytes


@pytest.mark.parametrize("written", ["", "lots\n", "-1\n", "1 2\n"])
def test_a_malformed_limit_starts_no_node(tmp_path: Path, written: str) -> None:
    """Something limits us, and nobody knows to what: memory fails closed."""
    with pytest.raises(ProfileError, match=r"memory\.limit_in_bytes"):
        find_limits(a_v1_tree(tmp_path, {"": v1_memory(written)}))


def test_without_cgroups_nothing_is_limited(tmp_path: Path) -> None:
    """Then the machine's own readings are all there is."""
    limits = find_limits(tmp_path)

    assert limits == NO_LIMITS
    assert (read_memory_left(limits), oom_kills(limits), limits.quota_cpus) == (None, None, None)
    assert read_own_pressure(limits, "memory") is None


def test_page_cache_is_left_in_version_1(tmp_path: Path) -> None:
    """The hierarchy's lines count; what is mapped is in use."""
    memory = v1_memory(1000, 900, inactive_file=300, active_file=200, mapped_file=50)

    assert read_memory_left(find_limits(a_v1_tree(tmp_path, {"": memory}))) == 1000 - 900 + 450


def test_page_cache_is_left_in_version_2(tmp_path: Path) -> None:
    """Read once (inactive) or more often (active): the kernel drops it for whoever asks."""
    memory = v2_memory(1000, 900, inactive_file=300, active_file=200, file_mapped=50)

    assert read_memory_left(find_limits(a_v2_tree(tmp_path, {"": memory}))) == 1000 - 900 + 450


@pytest.mark.parametrize(
    ("usage", "cached", "mapped", "left"),
    [(1000, 0, 0, 0), (1001, 0, 0, 0), (999, 0, 0, 1), (10, 500, 0, 1000), (500, 100, 101, 500)],
)
def test_what_is_left_is_within_the_limit(
    tmp_path: Path, usage: int, cached: int, mapped: int, left: int
) -> None:
    """The files are read one after the other, so their sums may not agree."""
    memory = v2_memory(1000, usage, inactive_file=cached, file_mapped=mapped)

    assert read_memory_left(find_limits(a_v2_tree(tmp_path, {"": memory}))) == left


def test_the_fullest_cgroup_decides_not_the_smallest(tmp_path: Path) -> None:
    """A neighbour in the same slice may have used up the larger limit."""
    levels = {"": v2_memory(10_000, 9_900), "job": v2_memory(1_000, 100)}

    assert read_memory_left(find_limits(a_v2_tree(tmp_path, levels, own="/job"))) == 100


def test_a_limit_is_read_again_each_time(tmp_path: Path) -> None:
    """One that is changed, lifted or set while the node runs counts from the next reading on."""
    levels = {"": v2_memory(usage=10), "job": v2_memory(1000, 10)}
    limits = find_limits(a_v2_tree(tmp_path, levels, own="/job"))
    top, own = tmp_path / "cgroup", tmp_path / "cgroup" / "job"
    left = [read_memory_left(limits)]
    for file, text in ((own / "memory.max", "500"), (own / "memory.max", "max"), (top / "memory.max", "70")):
        file.write_text(text)
        left.append(read_memory_left(limits))

    assert left == [990, 490, None, 60]


@pytest.mark.parametrize("name", ["memory.max", "memory.current", "memory.stat"])
@pytest.mark.parametrize("text", ["", "lots\n", "\x80"])
def test_a_limit_that_cannot_be_read_any_more_stops_admission(tmp_path: Path, name: str, text: str) -> None:
    """What it leaves is unknown, not endless."""
    limits = find_limits(a_v2_tree(tmp_path, {"": v2_memory(1000, 10)}))
    (tmp_path / "cgroup" / name).write_text(text)

    with pytest.raises(SnapshotError, match="what cgroup"):
        read_memory_left(limits)


@pytest.mark.parametrize("name", ["memory.current", "memory.stat"])
def test_a_file_that_is_gone_stops_admission(tmp_path: Path, name: str) -> None:
    """As one that is malformed does."""
    limits = find_limits(a_v2_tree(tmp_path, {"": v2_memory(1000, 10)}))
    (tmp_path / "cgroup" / name).unlink()

    with pytest.raises(SnapshotError, match=name):
        read_memory_left(limits)


def test_a_limited_cgroup_that_is_gone_stops_admission(tmp_path: Path) -> None:
    """The process was moved, and its new limits are not known; the sentence tells the cure."""
    limits = find_limits(a_v2_tree(tmp_path, {"": {}, "job": v2_memory(1000, 10)}, own="/job"))
    shutil.rmtree(tmp_path / "cgroup" / "job")

    with pytest.raises(SnapshotError, match="start the worker again if it was moved"):
        read_memory_left(limits)


def test_a_cgroup_that_never_limited_may_go(tmp_path: Path) -> None:
    """Nothing is lost with it."""
    limits = find_limits(a_v2_tree(tmp_path, {"": {}, "job": v2_memory()}, own="/job"))
    shutil.rmtree(tmp_path / "cgroup" / "job")

    assert read_memory_left(limits) is None


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", None),
        ("200000 100000", 2),
        ("199999 100000", 1),
        ("50000 100000", 1),
        ("250000 100000", 2),
        ("100000 0", None),
        ("lots", None),
        ("", None),
    ],
)
def test_a_quota_of_version_2_is_rounded_down_to_whole_cpus(
    tmp_path: Path, quota: str, cpus: int | None
) -> None:
    """At least one; what cannot be read is no quota, for too many threads are only slow."""
    assert find_limits(a_v2_tree(tmp_path, {"": {"cpu.max": quota}})).quota_cpus == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", None), ("350000", 3), ("", None)])
def test_a_quota_of_version_1_has_two_files(tmp_path: Path, quota: str, cpus: int | None) -> None:
    """-1 is no quota."""
    point = tmp_path / "cpu"
    levels_at(point, {"": {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000\n"}})
    mounts = mount_line(point, controllers="cpu,cpuacct")
    proc = a_cgroup_proc(tmp_path / "proc", mounts=mounts, cgroup="3:cpu,cpuacct:/\n")

    assert find_limits(proc).quota_cpus == cpus


def test_the_smallest_quota_of_all_above_counts(tmp_path: Path) -> None:
    """A slice's quota holds for everything in it."""
    levels = {"": {"cpu.max": "200000 100000"}, "job": {"cpu.max": "800000 100000"}}

    assert find_limits(a_v2_tree(tmp_path, levels, own="/job")).quota_cpus == 2


@pytest.mark.parametrize(("version", "kills"), [(1, 3), (2, 4)])
def test_the_kernels_kills_are_those_of_the_own_cgroup(tmp_path: Path, version: int, kills: int) -> None:
    """Each version has its file; without a readable one the number is unknown, not 0."""
    proc = a_v1_tree(tmp_path, {"": v1_memory()}) if version == 1 else a_v2_tree(tmp_path, {"": v2_memory()})
    limits = find_limits(proc)

    assert oom_kills(limits) == kills
    for file in tmp_path.rglob("memory.[eo]*"):
        file.write_text("oom 1\n")
    assert oom_kills(limits) is None


def test_an_own_cgroup_tells_its_pressure(tmp_path: Path) -> None:
    """In a container the machine's reading says little about what it feels itself."""
    files = {"cgroup.type": "domain\n", "memory.pressure": pressure(7), "cpu.pressure": "damaged"}
    limits = find_limits(a_v2_tree(tmp_path, {"": files}))

    assert read_own_pressure(limits, "memory") == 7
    assert [read_own_pressure(limits, resource) for resource in ("cpu", "io")] == [None, None]


def test_the_top_of_all_is_the_machine(tmp_path: Path) -> None:
    """It alone has no type, and tells what /proc/pressure tells: reading it twice is for nothing."""
    limits = find_limits(a_v2_tree(tmp_path, {"": {"memory.pressure": pressure(7)}}))

    assert limits.pressure_folder is None
