"""Holds the main process's end of the spawner: start it, ask it to fork or kill, hear what has ended.

Does not cover what the children are for (:mod:`worker.pool`), nor the other
end (:mod:`worker.spawner`).
"""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from worker.frames import LineBuffer, encode

READ_BYTES = 1 << 16
_READY_SECONDS = 300.0
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
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], start_new_session=True, env=dict(environment)
        )
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

    def kill(self, pid: int, signum: int) -> None:
        """Ask for a signal to a child and all it has started."""
        with suppress(OSError):
            self._control.sendall(encode({"kill": pid, "signal": int(signum)}))

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
