"""Other workers' files are seen at once, and a folder in which nothing happens is not listed again."""

import os
from pathlib import Path

import pytest

from worker.neighbours import Neighbours

SECOND_NS = 10**9


class Clock:
    """A clock that tests set."""

    now_ns = 0

    def __call__(self) -> int:
        """Return what it was set to."""
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    """Return a clock at 0."""
    return Clock()


def test_others_are_seen_not_oneself_nor_other_files(tmp_path: Path, clock: Clock) -> None:
    """Only files of workers count."""
    for name in ("me.worker", "you.worker", "notes.txt"):
        (tmp_path / name).touch()

    assert Neighbours(tmp_path / "me.worker", clock).names() == ("you.worker",)


@pytest.mark.parametrize(("after_ns", "is_seen"), [(SECOND_NS, True), (SECOND_NS + 1, False)])
def test_a_change_within_the_same_tick_is_seen(
    tmp_path: Path, clock: Clock, after_ns: int, *, is_seen: bool
) -> None:
    """Until a second after the folder's time was first seen; such a thing cannot happen later."""
    neighbours = Neighbours(tmp_path / "me.worker", clock)
    time_ns = tmp_path.stat().st_mtime_ns
    neighbours.names()
    clock.now_ns = after_ns
    neighbours.names()
    (tmp_path / "you.worker").touch()
    os.utime(tmp_path, ns=(time_ns, time_ns))

    assert neighbours.names() == (("you.worker",) if is_seen else ())


def test_a_newcomer_is_seen_and_so_is_its_end(tmp_path: Path, clock: Clock) -> None:
    """However long nothing happened before."""
    neighbours = Neighbours(tmp_path / "me.worker", clock)
    other, seen = tmp_path / "you.worker", []
    for number, change in enumerate((None, other.touch, other.unlink)):
        if change is not None:
            change()
        os.utime(tmp_path, ns=(number, number))
        for _ in range(2):
            clock.now_ns += 2 * SECOND_NS
            seen.append(neighbours.names())

    assert seen == [(), (), ("you.worker",), ("you.worker",), (), ()]


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path, clock: Clock) -> None:
    """Nobody knows then who is there."""
    with pytest.raises(FileNotFoundError):
        Neighbours(tmp_path / "gone" / "me.worker", clock).names()
