"""Holds disks of a test that can be filled, made read-only, taken away and mounted again. Needs root.

``with small_disk(folder, size_bytes) as disk:`` mounts one of its own (tmpfs)
in a folder, whose content ends with it; ``with mounted(source, folder)``
mounts a folder, whose content stays, as that of a network share does.
Whatever is still mounted at the end of the block is unmounted.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import wait_until

_FREE_SECONDS = 30.0
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDisk:
    """A disk with a folder and a size; made by :func:`small_disk`."""

    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, *, but_bytes: int = 0) -> None:
        """Leave no more than so much, and whatever else is freed while this writes."""
        with self._filler.open("ab") as file, suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(_CHUNK_BYTES))
        if but_bytes:
            os.truncate(self._filler, max(0, self._filler.stat().st_size - but_bytes))

    def free(self) -> None:
        """Take away what filled it."""
        self._filler.unlink()

    def make_read_only(self) -> None:
        """Forbid writing, as a disk with errors does; waits until nothing is being written."""
        wait_until(
            lambda: _run("mount", "-o", "remount,ro", str(self.folder)),
            "nothing is being written",
            deadline_seconds=_FREE_SECONDS,
        )

    def make_writable(self) -> None:
        """Allow writing again."""
        _must("mount", "-o", "remount,rw", str(self.folder))


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount an empty disk of this size in a folder for the block; skip the test where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)):
        pytest.skip("no disk can be mounted here: that takes root and the right to mount")
    try:
        yield SmallDisk(folder=folder)
    finally:
        unmount(folder)


@contextmanager
def mounted(source: Path, folder: Path) -> Iterator[None]:
    """Mount a folder in another for the block; skip the test where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _run("mount", "--bind", str(source), str(folder)):
        pytest.skip("no folder can be mounted here: that takes root and the right to mount")
    try:
        yield
    finally:
        unmount(folder)


def mount_again(source: Path, folder: Path) -> None:
    """Mount a folder in another; :func:`mounted` unmounts it."""
    _must("mount", "--bind", str(source), str(folder))


def unmount(folder: Path) -> None:
    """Take away what is mounted in a folder, whoever uses it, as a share whose server has gone."""
    while _is_mounted(folder):
        _must("umount", "--lazy", str(folder))


def _is_mounted(folder: Path) -> bool:
    # Path.is_mount() compares disks, and sees no folder that is mounted on its own disk.
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    return str(folder) in {line.split()[4] for line in mounts}


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _must(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(errno.EIO, f"{' '.join(command)}: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingDisk:
    """A disk that can be made to hang whoever writes to it; made by :func:`hanging_disk`."""

    folder: Path

    def hang(self) -> None:
        """Let writers wait from now on, as a share does whose server has gone."""
        _must("fsfreeze", "--freeze", str(self.folder))

    def answer(self) -> None:
        """Let them go on."""
        _must("fsfreeze", "--unfreeze", str(self.folder))


@contextmanager
def hanging_disk(folder: Path, image: Path, size_bytes: int) -> Iterator[HangingDisk]:
    """Mount an empty disk, kept in a file, for the block; skip the test where that is not allowed."""
    folder.mkdir(parents=True)
    with image.open("xb") as file:
        file.truncate(size_bytes)
    if not _run("mkfs.ext4", "-q", str(image)) or not _run("mount", "-o", "loop", str(image), str(folder)):
        pytest.skip("no disk can be made of a file here: that takes mkfs.ext4, root and the right to mount")
    try:
        yield HangingDisk(folder=folder)
    finally:
        _run("fsfreeze", "--unfreeze", str(folder))  # Whatever the test did: nobody could unmount it.
        unmount(folder)
