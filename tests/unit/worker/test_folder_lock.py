"""A folder is held by one process at a time; the kernel lets go of it, however that process ends."""

import errno
import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker.folder_lock import LOCK_NAME, FolderInUseError, hold, seize

HOLD_UNTIL_KILLED = """
import sys
from pathlib import Path
from worker.folder_lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def can_be_held(folder: Path) -> bool:
    """Tell whether nobody holds a folder."""
    try:
        with hold(folder):
            return True
    except FolderInUseError:
        return False


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    """And free again afterwards."""
    with hold(tmp_path):
        during = can_be_held(tmp_path)

    assert not during
    assert can_be_held(tmp_path)


def test_a_killed_holder_lets_go_though_its_child_lives(tmp_path: Path) -> None:
    """The lock is not inherited by what a holder starts."""
    with hold(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        is_free = can_be_held(tmp_path)

    assert is_free


def test_the_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    """SIGKILL leaves no time to let go of anything."""
    command = [sys.executable, "-c", HOLD_UNTIL_KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        told = holder.stdout.readline() if holder.stdout else b""
        during = can_be_held(tmp_path)
        holder.kill()

    assert told == b"held\n"
    assert not during
    assert can_be_held(tmp_path)


def test_a_folder_in_use_cannot_be_seized(tmp_path: Path) -> None:
    """Only what its owner has left."""
    with hold(tmp_path), pytest.raises(FolderInUseError, match="is in use"), seize(tmp_path):
        pass
    with seize(tmp_path):
        is_seized = not can_be_held(tmp_path)

    assert is_seized


def test_a_folder_that_was_never_held_is_not_seized(tmp_path: Path) -> None:
    """Its owner may be about to hold it; looking leaves nothing in it."""
    with pytest.raises(FileNotFoundError), seize(tmp_path):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_folder_removed_while_it_is_being_locked_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that is gone would protect nothing."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(fcntl, "flock", lambda *_: shutil.rmtree(folder))

    with pytest.raises(FolderInUseError, match="was removed"), hold(folder):
        pass


def test_without_locks_a_folder_is_used_but_never_seized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network share without locks can hold projects; what nobody can lock nobody may remove."""
    (tmp_path / LOCK_NAME).touch()

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with hold(tmp_path):
        pass

    with pytest.raises(OSError, match="no locks here"), seize(tmp_path):
        pass
