"""Finds the folders of this process's cgroups: its own and all above it that can be seen here.

Knows ``/proc/self/cgroup`` and ``/proc/self/mountinfo`` (cgroups(7), proc(5)).
Does not cover the files in those folders (:mod:`governor.cgroup_files`).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_OCTAL = re.compile(rb"\\([0-7]{3})")
_UNIFIED = ""
"""What stands for the controllers in version 2's line of ``/proc/self/cgroup``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFolders:
    """Where one controller's cgroups of this process are.

    ``folders`` begins with the own one and ends with the mount point. In a
    container that is the container's own cgroup; what is above it is hidden.
    """

    version: int
    mount_point: Path
    folders: tuple[Path, ...]

    def name_of(self, folder: Path) -> str:
        """Return a folder's path as this process sees it; "/" is the top."""
        return str(PurePosixPath("/") / folder.relative_to(self.mount_point))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    root: PurePosixPath
    """Which cgroup is shown at the mount point."""
    point: Path

    def shows(self, path: PurePosixPath) -> bool:
        return path.is_relative_to(self.root) and ".." not in path.parts


def find_folders(proc_root: Path, controller: str) -> CgroupFolders | None:
    """Return the folders of a controller ("memory", "cpu"); None: there are none, or none is mounted here.

    A controller that version 1 does not hold is version 2's.
    """
    try:
        paths = dict(_paths(proc_root))
        mounts = tuple(_mounts(proc_root))
    except (OSError, ValueError):
        return None
    if controller in paths:
        return _located(1, [mount for held, mount in mounts if controller in held], paths[controller])
    return _unified(mounts, paths)


def find_unified_folders(proc_root: Path) -> CgroupFolders | None:
    """Return version 2's folders, also where it holds no controller and only tells pressure."""
    try:
        return _unified(tuple(_mounts(proc_root)), dict(_paths(proc_root)))
    except (OSError, ValueError):
        return None


_HeldMount = tuple[frozenset[str], _Mount]
"""A mount, and the controllers that it holds; those of version 2 are one, without a name."""


def _unified(mounts: tuple[_HeldMount, ...], paths: dict[str, PurePosixPath]) -> CgroupFolders | None:
    if _UNIFIED not in paths:
        return None
    return _located(2, [mount for held, mount in mounts if _UNIFIED in held], paths[_UNIFIED])


def _located(version: int, mounts: list[_Mount], path: PurePosixPath) -> CgroupFolders | None:
    """Prefer a mount that shows our cgroup; else the first one's top bounds us, as in a container."""
    for mount in mounts:
        if mount.shows(path):
            return _chain(version, mount.point, mount.point / path.relative_to(mount.root))
    return _chain(version, mounts[0].point, mounts[0].point) if mounts else None


def _chain(version: int, point: Path, own: Path) -> CgroupFolders | None:
    """Return the folders that are there; a path may name one that the mount does not show."""
    above = [own, *own.parents]
    folders = tuple(folder for folder in above[: above.index(point) + 1] if folder.is_dir())
    return CgroupFolders(version=version, mount_point=point, folders=folders) if folders else None


def _paths(proc_root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield each controller and its cgroup, e.g. of ``4:memory:/user.slice`` and ``0::/user.slice``."""
    for line in (proc_root / "self" / "cgroup").read_bytes().splitlines():
        _, controllers, path = os.fsdecode(line).split(":", 2)
        for controller in controllers.split(","):
            yield controller, PurePosixPath(path)


def _mounts(proc_root: Path) -> Iterator[_HeldMount]:
    for line in (proc_root / "self" / "mountinfo").read_bytes().splitlines():
        fields, _, file_system = line.partition(b" - ")
        kind, _, options = file_system.split(b" ", 2)
        if kind in {b"cgroup", b"cgroup2"}:
            _, _, _, root, point, *_ = (_unescaped(field) for field in fields.split(b" "))
            held = frozenset(os.fsdecode(options).split(",")) if kind == b"cgroup" else frozenset({_UNIFIED})
            yield held, _Mount(root=PurePosixPath(root), point=Path(point))


def _unescaped(field: bytes) -> str:
    r"""Undo the kernel's octal escapes: a space is ``\040``."""
    return os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), field))
