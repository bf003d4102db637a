"""The workers of a machine find each other in a folder, and the dead leave nothing that counts."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from governor.profile import read_profile
from tests.unit.governor.builders import GIB, a_proc
from tests.unit.governor.cgroup_trees import a_v2_tree, v2_memory
from worker import bounds, machine
from worker.machine import check_room, default_lock_folder, held_folder, take_place
from worker.partitions import Partition
from worker.settings import Settings, WrongSettingError

MIB = 2**20
ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a lock folder that is still to be made."""
    return tmp_path / "below" / "workers"


@pytest.fixture(autouse=True)
def _places_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give up all places that a test has taken: a process would hold them until its end."""
    taken: list[int] = []
    lock = machine._locked_file

    def noted(path: Path, partition: Partition) -> int:
        taken.append(lock(path, partition))
        return taken[-1]

    monkeypatch.setattr(machine, "_locked_file", noted)
    yield
    for descriptor in taken:
        os.close(descriptor)


def settings(folder: Path, **values: Any) -> Settings:
    """Return the settings of a worker that uses this folder."""
    return Settings(**{"broker_url": "redis://lab", "lock_folder": folder, **values})


def small(folder: Path, **values: Any) -> Settings:
    """Return the settings of a worker that takes next to no memory, but one CPU."""
    return settings(folder, **{"memory_bytes": MIB, "cpus": 1, **values})


def test_a_second_whole_worker_is_refused_by_name(folder: Path) -> None:
    """On any queue: memory knows no queues."""
    take_place(settings(folder, name="first"))

    with pytest.raises(WrongSettingError, match="already has worker `first` \\(all of it\\)"):
        take_place(settings(folder, broker_url="redis://elsewhere"))


def test_a_refused_worker_leaves_no_trace(folder: Path) -> None:
    """The next one is told of those that run."""
    take_place(settings(folder))
    for _ in range(2):
        with pytest.raises(WrongSettingError, match=r"already has worker `[^`]*` \(all of it\), and another"):
            take_place(settings(folder))

    assert len(list(folder.iterdir())) == 1


def test_looking_for_room_takes_none(folder: Path) -> None:
    """`tiepoint run` looks before it starts its server."""
    check_room(settings(folder))
    check_room(settings(folder))
    take_place(settings(folder))

    with pytest.raises(WrongSettingError, match="does not fit"):
        check_room(settings(folder))


def test_partitions_of_one_machine_run_side_by_side(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    half_bytes = read_profile().memory_total_bytes // 2
    for _ in range(2):
        take_place(settings(folder, memory_bytes=half_bytes, cpus=1))

    with pytest.raises(WrongSettingError, match="does not fit"):
        take_place(small(folder))


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that enters a container, by its name: 4 GiB and 3 CPUs of 16 GiB and 8 CPUs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    levels = {"": v2_memory(4 * GIB) | {"cpu.max": "300000 100000\n"}}

    def entered(name: str) -> None:
        if not (tmp_path / name).exists():
            a_proc(tmp_path / name / "proc")
            a_v2_tree(tmp_path / name, levels)
        monkeypatch.setattr(bounds, "_PROC_ROOT", tmp_path / name / "proc")

    return entered


def test_the_workers_of_a_container_share_its_limits(folder: Path, enter: Callable[[str], None]) -> None:
    """Two halves fit; a third worker is told why it does not, though the machine is larger."""
    enter("box")
    for _ in range(2):
        take_place(settings(folder, memory_bytes=2 * GIB, cpus=1))

    with pytest.raises(WrongSettingError, match=r"^this container \(limited to 4 GiB, 3 CPUs\) already has"):
        take_place(settings(folder, memory_bytes=GIB, cpus=1))


def test_the_workers_of_a_container_share_its_quota(folder: Path, enter: Callable[[str], None]) -> None:
    """Memory is left, CPUs are not."""
    enter("box")
    take_place(settings(folder, memory_bytes=GIB, cpus=2))

    with pytest.raises(WrongSettingError, match=r"and another \(1 GiB, 2 CPUs\) does not fit"):
        take_place(settings(folder, memory_bytes=GIB, cpus=2))


def test_a_quota_is_shared_without_a_memory_limit(
    folder: Path, tmp_path: Path, enter: Callable[[str], None]
) -> None:
    """As of `docker run --cpus`: memory bounds nobody then, and the machine has CPUs enough."""
    enter("box")
    (tmp_path / "box" / "cgroup" / "memory.max").write_text("max")
    take_place(settings(folder, memory_bytes=GIB, cpus=2))

    with pytest.raises(WrongSettingError, match="does not fit"):
        take_place(settings(folder, memory_bytes=GIB, cpus=2))


def test_a_place_names_the_cgroups_that_limit_its_memory(
    folder: Path, tmp_path: Path, enter: Callable[[str], None]
) -> None:
    """By what is the same in every container; a neighbour's promises count by them, quotas do not."""
    enter("box")
    limited = take_place(settings(folder, memory_bytes=GIB, cpus=1))
    found = (tmp_path / "box" / "cgroup").stat()
    (tmp_path / "box" / "cgroup" / "memory.max").write_text("max")
    unlimited = take_place(settings(folder, memory_bytes=GIB, cpus=1))

    assert limited.memory_cgroups == {f"{found.st_dev}:{found.st_ino}"}
    assert unlimited.memory_cgroups == frozenset()


def test_nobody_else_looks_while_a_place_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that start at once each would else miss the other."""
    really_lock, could_look = machine._locked_file, []

    def locked(path: Path, partition: Partition) -> int:
        try:
            with held_folder(folder, tries=1):
                could_look.append(True)
        except BlockingIOError:
            could_look.append(False)
        return really_lock(path, partition)

    monkeypatch.setattr(machine, "_locked_file", locked)
    take_place(settings(folder))

    assert could_look == [False]


def test_a_link_in_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """Anybody may put one there; what it points to is no worker's."""
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere").touch()
    (folder / "link.worker").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(WrongSettingError, match="cannot tell which workers run"):
        take_place(settings(folder))


def test_containers_with_one_lock_folder_share_the_machine(
    folder: Path, enter: Callable[[str], None]
) -> None:
    """Each has its own limit, and a worker without options takes that: for the CPUs two fit, no third."""
    for name in ("first", "second"):
        enter(name)
        take_place(settings(folder))
    enter("third")

    with pytest.raises(
        WrongSettingError, match=r"^this machine \(16 GiB, 8 CPUs\) already has .*4 GiB, 3 CPUs"
    ):
        take_place(settings(folder))


def test_without_a_readable_limit_no_worker_starts(
    folder: Path, tmp_path: Path, enter: Callable[[str], None]
) -> None:
    """Memory fails closed."""
    enter("box")
    (tmp_path / "box" / "cgroup" / "memory.max").write_text("lots")

    with pytest.raises(WrongSettingError, match="cannot read the memory limit"):
        take_place(settings(folder))


def test_names_that_nobody_chose_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are told to the worker's children."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    first, second = (take_place(small(folder)).settings for _ in range(2))

    assert second.name == f"{first.name}-2"
    assert second.to_environment()["TIEPOINT_NAME"] == second.name


def test_a_chosen_name_that_is_taken_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number behind it would not be what was asked for; on another queue it is free."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    take_place(small(folder, name="a"))
    take_place(small(folder, name="a", broker_url="redis://elsewhere"))

    with pytest.raises(WrongSettingError, match="a worker called `a` already serves this queue"):
        take_place(small(folder, name="a"))


@pytest.mark.parametrize("left", [b"", b"{", b'{"name": "x"}', b'{"name": "x", "queue": "", "cpus": "many"}'])
def test_a_dead_workers_file_counts_for_nothing_and_is_removed(folder: Path, left: bytes) -> None:
    """Whatever it holds: nobody holds it."""
    folder.mkdir(parents=True)
    (folder / "dead.worker").write_bytes(left)
    take_place(settings(folder))

    assert not (folder / "dead.worker").exists()


def test_a_living_workers_file_that_cannot_be_read_counts_as_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory fails closed."""
    take_place(small(folder))
    next(folder.iterdir()).write_text("{")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    with pytest.raises(WrongSettingError, match=r"worker `unknown` \(all of it\)"):
        take_place(small(folder))


def test_without_the_folder_no_worker_starts(tmp_path: Path) -> None:
    """The message names it, and the setting that names another."""
    (tmp_path / "file").touch()

    with pytest.raises(WrongSettingError, match=r"file: .*TIEPOINT_LOCK_FOLDER"):
        take_place(settings(tmp_path / "file"))


def test_all_users_may_add_a_worker_and_see_the_others(folder: Path) -> None:
    """Nobody may remove another's; the password of the queue is in no file."""
    take_place(settings(folder, broker_url="redis://:secret@lab"))
    path = next(folder.iterdir())

    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert "secret" not in path.read_text()


def test_what_a_full_disk_has_left_bars_no_other_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that others cannot open would keep their workers from starting for ever."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        with pytest.raises(WrongSettingError, match="No space left"):
            take_place(settings(folder))

    assert stat.S_IMODE(next(folder.iterdir()).stat().st_mode) == 0o644


def test_a_place_is_not_handed_to_child_processes(folder: Path) -> None:
    """One that outlives its worker must not hold its place."""
    place = take_place(settings(folder))

    assert not os.get_inheritable(place.descriptor)


HOLD = (
    "import sys; from worker.machine import *; place = take_place(Settings()); print(1, flush=True); input()"
)


def test_the_kernel_gives_a_killed_workers_place_back(folder: Path) -> None:
    """No clean-up, no time-out."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TIEPOINT_LOCK_FOLDER": str(folder)}
    command = [sys.executable, "-P", "-c", HOLD]
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(WrongSettingError, match="does not fit"):
            check_room(settings(folder))
        holder.kill()

    check_room(settings(folder))


def test_the_default_folder_is_the_same_for_every_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A place for locks that all may write to, else the one for temporary files, TMPDIR or not."""
    locks, temporary = tmp_path / "locks", tmp_path / "tmp"
    monkeypatch.setattr(machine, "_PLACES", (locks, temporary))
    absent = default_lock_folder()
    locks.mkdir(mode=0o755)
    only_for_root = default_lock_folder()
    locks.chmod(0o1777)

    assert absent == only_for_root == temporary / "tiepoint-workers"
    assert default_lock_folder() == locks / "tiepoint-workers"
