"""Builds cgroup trees of real files, and the two files of /proc that say where they are."""

from pathlib import Path

GIB = 2**30
V1_UNLIMITED = "9223372036854771712\n"
Level = dict[str, str]


def v1_memory(limit: int | str = V1_UNLIMITED, usage: int = 0, **stat: int) -> Level:
    """Return a cgroup's memory files of version 1; ``inactive_file=...`` is a line of its statistics."""
    lines = {"inactive_file": 0, "active_file": 0, "mapped_file": 0} | stat
    return {
        "memory.limit_in_bytes": str(limit),
        "memory.usage_in_bytes": str(usage),
        # The lines without `total_` are the cgroup's own, without those below it.
        "memory.stat": "".join(f"{name} 1\n" for name in lines)
        + "".join(f"total_{name} {amount}\n" for name, amount in lines.items()),
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }


def v2_memory(limit: int | str = "max", usage: int = 0, **stat: int) -> Level:
    """Return a cgroup's memory files of version 2; ``inactive_file=...`` is a line of its statistics."""
    lines = {"inactive_file": 0, "active_file": 0, "file_mapped": 0} | stat
    return {
        "memory.max": f"{limit}\n",
        "memory.high": "max\n",
        "memory.current": f"{usage}\n",
        "memory.stat": "".join(f"{name} {amount}\n" for name, amount in lines.items()),
        "memory.events": "low 0\nhigh 0\nmax 9\noom 5\noom_kill 4\noom_group_kill 0\n",
    }


def pressure(percent: float) -> str:
    """Return a pressure file."""
    return f"some avg10={percent:.2f} avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00\n"


def mount_line(point: Path | str, *, root: str = "/", controllers: str | None = None) -> str:
    """Return a line of mountinfo: version 1 with its controllers, or version 2."""
    kind, held = ("cgroup2", "") if controllers is None else ("cgroup", f",{controllers}")
    place = str(point).replace(" ", r"\040")
    return f"32 31 0:29 {root} {place} rw,nosuid shared:9 master:1 - {kind} cgroup rw{held}\n"


def a_cgroup_proc(proc: Path, *, mounts: str, cgroup: str) -> Path:
    """Write ``self/mountinfo`` and ``self/cgroup`` of a fake /proc; return it."""
    own = proc / "self"
    own.mkdir(parents=True, exist_ok=True)
    (own / "mountinfo").write_text(f"23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n{mounts}")
    (own / "cgroup").write_text(cgroup)
    return proc


def levels_at(point: Path, levels: dict[str, Level]) -> None:
    """Write the cgroups of a mount by their paths; "" is its top."""
    for path, files in levels.items():
        folder = point / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)


def a_v1_tree(root: Path, levels: dict[str, Level], own: str = "/") -> Path:
    """Write a memory hierarchy of version 1 with an empty version 2 beside it; return /proc."""
    point = root / "cgroup" / "memory"
    levels_at(point, levels)
    (root / "cgroup" / "unified").mkdir(parents=True)
    mounts = mount_line(point, controllers="memory") + mount_line(root / "cgroup" / "unified")
    return a_cgroup_proc(root / "proc", mounts=mounts, cgroup=f"4:memory:{own}\n1:name=systemd:/\n0::/\n")


def a_v2_tree(root: Path, levels: dict[str, Level], own: str = "/") -> Path:
    """Write a hierarchy of version 2; return /proc."""
    levels_at(root / "cgroup", levels)
    return a_cgroup_proc(root / "proc", mounts=mount_line(root / "cgroup"), cgroup=f"0::{own}\n")
