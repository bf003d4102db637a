"""What a dead process has left is ended, and nothing else is."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from worker.process_tree import children, end_children, has_children

Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a process that sleeps; it is killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one() -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(97)"]))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.wait()


def test_what_was_there_before_is_spared(start: Start) -> None:
    """Whoever started this process may have given it children of its own."""
    mine = start()
    before = children()
    other = start()

    assert end_children(before, within_seconds=60)
    assert mine.poll() is None
    assert not psutil.pid_exists(other.pid)


def test_a_child_is_seen_while_it_lives(start: Start) -> None:
    """And no longer: that it was not waited for yet does not count."""
    child = start()
    is_seen = child.pid in children() and has_children()
    child.kill()
    child.wait()

    assert is_seen
    assert child.pid not in children()
