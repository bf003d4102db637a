"""A worker of this machine is dead where the kernel says so, and only our own files are believed."""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from worker import machine, predecessors
from worker.machine import Place, take_place, workers_here
from worker.predecessors import find_predecessors
from worker.settings import Settings

MIB = 2**20


class Machine:
    """A machine with room for a few workers, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: set[int] = set()

    def settings(self, name: str, queue: str = "redis://lab") -> Settings:
        """Return the settings of a small worker."""
        return Settings(broker_url=queue, lock_folder=self.folder, name=name, memory_bytes=MIB, cpus=1)

    def start(self, name: str, queue: str = "redis://lab") -> Place:
        """Take a worker's place."""
        place = take_place(self.settings(name, queue))
        self._open.add(place.descriptor)
        return place

    def kill(self, place: Place) -> None:
        """Do what the kernel does when a process ends."""
        os.close(place.descriptor)
        self._open.remove(place.descriptor)

    def end(self) -> None:
        """Kill all that still run."""
        for descriptor in self._open:
            os.close(descriptor)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a machine without workers."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    here = Machine(tmp_path / "workers")
    yield here
    here.end()


def dead_beside(place: Place) -> list[str]:
    """Return what the leases of a worker's dead neighbours are called."""
    return [dead.incarnation for dead in find_predecessors(place)]


def test_a_killed_worker_is_found_by_the_name_of_its_lease(here: Machine) -> None:
    """By one that runs beside it already, too; while it lives it is not."""
    first, second = here.start("one"), here.start("two")
    before = dead_beside(second)
    here.kill(first)

    assert before == []
    assert dead_beside(second) == [first.partition.incarnation]
    assert first.partition.incarnation.startswith("one|")


def test_two_starts_of_one_worker_have_two_leases(here: Machine) -> None:
    """What the first one held is not the second one's."""
    first = here.start("one")
    here.kill(first)
    second = here.start("one")

    assert first.partition.incarnation != second.partition.incarnation
    assert dead_beside(second) == [first.partition.incarnation]


def test_whoever_looks_at_the_machine_removes_no_proof(here: Machine) -> None:
    """Its part is free at once, but what it held is still to be given back."""
    first, second = here.start("one"), here.start("two")
    here.kill(first)
    running = workers_here(here.settings("three"))

    assert [worker.name for worker in running] == ["two"]
    assert dead_beside(second) == [first.partition.incarnation]


def test_what_was_given_back_is_forgotten(here: Machine) -> None:
    """And leaves no file."""
    first, second = here.start("one"), here.start("two")
    here.kill(first)
    for dead in find_predecessors(second):
        dead.forget()

    assert dead_beside(second) == []
    assert list(here.folder.iterdir()) == [second.path]


def test_a_dead_worker_of_another_queue_is_no_affair_of_ours(here: Machine) -> None:
    """Its queue may be empty of that lease, or have it back long since; what it left stays for its own."""
    other, ours = here.start("one", "redis://elsewhere"), here.start("one")
    here.kill(other)
    found = dead_beside(ours)

    assert found == []
    assert dead_beside(here.start("two", "redis://elsewhere")) == [other.partition.incarnation]


def test_a_file_of_another_user_is_not_believed(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may write to the folder, and the name of a living worker's lease is no secret."""
    first, second = here.start("one"), here.start("two")
    here.kill(first)
    as_its_owner = dead_beside(second)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    assert as_its_owner == [first.partition.incarnation]
    assert dead_beside(second) == []


@pytest.mark.parametrize("name", ["copy.worker", "copy.dead"])
def test_a_copy_of_a_living_workers_file_is_not_believed(here: Machine, name: str) -> None:
    """Nobody has locked it: of a folder that was copied, or of an image made of a running container."""
    first, second = here.start("one"), here.start("two")
    (here.folder / name).write_bytes(first.path.read_bytes())

    assert dead_beside(second) == []


def test_what_another_machine_wrote_is_not_believed(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may live: the locks of some shares are not seen by the other machines."""
    first, second = here.start("one"), here.start("two")
    here.kill(first)
    (tmp_path / "boot_id").write_text("another\n")
    at_home = dead_beside(second)
    monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "boot_id")

    assert at_home == [first.partition.incarnation]
    assert dead_beside(second) == []


@pytest.mark.parametrize("text", [b"", b"{", b'{"name": "x", "queue": "y"}'])
def test_a_file_that_says_nothing_is_left_alone(here: Machine, text: bytes) -> None:
    """Its worker may be about to lock it, and must not meet our lock."""
    place = here.start("one")
    (here.folder / "new.worker").write_bytes(text)

    assert dead_beside(place) == []
    assert (here.folder / "new.worker").read_bytes() == text


def test_a_file_that_is_being_made_is_never_locked_by_who_looks(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes a place does not wait for its own file, and would not start."""
    place, found = here.start("one"), []
    lock = fcntl.flock

    def look_and_lock(descriptor: int, how: int) -> None:
        with monkeypatch.context() as once:
            once.setattr(fcntl, "flock", lock)
            found.extend(find_predecessors(place))
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", look_and_lock)
    here.start("two")

    assert found == []


@pytest.mark.parametrize(("age_ns", "stays"), [(-1, True), (1, False)])
def test_what_nobody_asks_for_is_removed_after_an_hour(
    here: Machine, monkeypatch: pytest.MonkeyPatch, age_ns: int, *, stays: bool
) -> None:
    """No lease is that long: others have given it back."""
    here.kill(here.start("one", "redis://elsewhere"))
    place = here.start("two")
    (left,) = here.folder.glob("*.dead")
    age = os.fstat(place.descriptor).st_ctime_ns - left.stat().st_ctime_ns
    monkeypatch.setattr(predecessors, "_FORGOTTEN_AFTER_NS", age - age_ns)
    find_predecessors(place)

    assert left.exists() == stays


def test_a_folder_that_is_gone_is_an_error(here: Machine) -> None:
    """Not the same as a machine on which nobody has died."""
    place = here.start("one")
    gone = replace(place, path=here.folder / "gone" / "x.worker")

    with pytest.raises(FileNotFoundError):
        find_predecessors(gone)
