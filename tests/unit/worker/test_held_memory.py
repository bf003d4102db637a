"""What a node's jobs hold: the private pages of its children above their least."""

import os
from pathlib import Path

from worker.held_memory import HeldMemory

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def write_child(proc: Path, pid: int, resident_pages: int, shared_pages: int = 10) -> None:
    """Write a child's file of a fake /proc."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "statm").write_text(f"9999 {resident_pages} {shared_pages} 5 0 77 0\n")


def held_by(proc: Path, *pids: int) -> HeldMemory:
    """Return the memory of these children."""
    held = HeldMemory(proc)
    held.child_pids = lambda: pids
    return held


def test_what_an_idle_child_has_is_held_by_no_job(tmp_path: Path) -> None:
    """Only what it has above its least counts, and no pages of files."""
    held = held_by(tmp_path, 1)
    amounts = []
    for resident_pages, shared_pages in ((30, 10), (130, 10), (130, 50), (25, 10), (35, 10)):
        write_child(tmp_path, 1, resident_pages, shared_pages)
        amounts.append(held.read_bytes() // PAGE_BYTES)

    assert amounts == [0, 100, 60, 0, 10]


def test_what_a_job_leaves_loaded_is_held_by_no_later_job(tmp_path: Path) -> None:
    """As an OpenCL driver; from when its child is seen idle, whose next job is counted from there."""
    held = held_by(tmp_path, 1)
    amounts = []
    idle: list[int] = []
    held.idle_pids = lambda: idle
    for resident_pages, idle[:] in ((30, [1]), (130, []), (110, [1]), (150, []), (100, [])):
        write_child(tmp_path, 1, resident_pages)
        amounts.append(held.read_bytes() // PAGE_BYTES)

    assert amounts == [0, 100, 0, 40, 0]


def test_the_children_add_up_and_the_dead_hold_nothing(tmp_path: Path) -> None:
    """A number that is used again is another child's."""
    held = held_by(tmp_path, 1, 2)
    for pid in (1, 2):
        write_child(tmp_path, pid, 20)
    held.read_bytes()
    for pid in (1, 2):
        write_child(tmp_path, pid, 50)
    both = held.read_bytes()
    (tmp_path / "2" / "statm").unlink()
    one = held.read_bytes()
    write_child(tmp_path, 2, 400)

    assert (both, one, held.read_bytes()) == (60 * PAGE_BYTES, 30 * PAGE_BYTES, 30 * PAGE_BYTES)


def test_this_process_has_memory() -> None:
    """The format is the kernel's."""
    assert HeldMemory()._private_bytes(os.getpid()) > 2**20


def test_without_children_nothing_is_held() -> None:
    """As before the pool has started."""
    assert HeldMemory().read_bytes() == 0
