"""Holds the main process's end of the spawner: start it, ask it to fork or kill, hear what has ended.

Does not cover what the children are for (:mod:`worker.pool`), nor the other
end (:mod:`worker.spawner`).
"""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from worker.frames import LineBuffer, encode
from worker.process_tree import adopt_orphans, children, end_children

READ_BYTES = 1 << 16
_READY_SECONDS = 300.0
_END_WITHIN_SECONDS = 6.0
"""The spawner gives what is below it a shorter time."""
_GONE_SECONDS = 5.0


class SpawnerError(Exception):
    """The spawner has ended before it was ready; what it printed names the cause."""


class SpawnerLink:
    """One running spawner; main thread only.

    A request to a spawner that has just died is dropped: the end of its
    socket, which is noticed next, has everything started anew.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair()
        self._frames = LineBuffer()
        command = [sys.executable, "-P", "-m", "worker.spawner", str(theirs.fileno()), str(os.getpid())]
        # Started from the main thread: the children's death signal hangs on it.
        self._process = _SpawnerProcess(command, theirs.fileno(), environment)
        theirs.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when there are frames, or the spawner has ended."""
        return self._control.fileno()

    def wait_until_ready(self) -> None:
        """Wait until the job kinds are loaded.

        Raises:
            SpawnerError: it has ended, or takes minutes.
        """
        readable, _, _ = select.select([self._control], [], [], _READY_SECONDS)
        if not readable or not self._control.recv(1, socket.MSG_PEEK):
            raise SpawnerError

    def spawn(self, serial: int) -> socket.socket:
        """Ask for a child; return our end of its channel."""
        ours, theirs = socket.socketpair()
        with suppress(OSError):
            socket.send_fds(self._control, [encode({"spawn": serial})], [theirs.fileno()])
        theirs.close()
        return ours

    def kill(self, pid: int, signum: int, *, alone: bool = False) -> None:
        """Ask for a signal to a child and its process group, or to the child alone.

        Once it is dead, whatever else it has started is killed.
        """
        with suppress(OSError):
            self._control.sendall(encode({"kill": pid, "signal": int(signum), "alone": alone}))

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the frames that are there; None when the spawner has ended."""
        data = received(self._control)
        if data is None:
            return []
        return list(self._frames.feed(data)) if data else None

    def close(self, child_pids: Iterable[int]) -> None:
        """End the spawner, and with it its children; returns when they are gone."""
        watches = [fd for pid in child_pids if (fd := _watch(pid)) is not None]
        self._control.close()
        self._process.wait()
        for fd in watches:
            select.select([fd], [], [], _GONE_SECONDS)
            os.close(fd)


class _SpawnerProcess:
    """The process, and what falls to us if it is killed."""

    def __init__(self, command: Sequence[str], control_fd: int, environment: Mapping[str, str]) -> None:
        adopt_orphans()
        self._not_its_own = children()
        self._process = subprocess.Popen(
            command, pass_fds=[control_fd], start_new_session=True, env=dict(environment)
        )

    def wait(self) -> None:
        """Wait for its end, which it is helped to if need be; end what it has left."""
        try:
            self._process.wait(_END_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:  # It was stopped, or waits for a dead disk.
            self._process.kill()
            self._process.wait()
        end_children(self._not_its_own, within_seconds=_GONE_SECONDS)


def _watch(pid: int) -> int | None:
    """Return a descriptor that is readable once a process has ended; None where there is no such process."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None  # It has ended, or the system has no such descriptors.


def received(channel: socket.socket) -> bytes | None:
    """Return what there is to read: nothing yet is None, the end is empty.

    Never blocks: in one round of its loop the hub may report a descriptor that
    was closed and is another, still silent channel by now.
    """
    try:
        return channel.recv(READ_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
