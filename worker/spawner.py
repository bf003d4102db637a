"""Forks the pool's children from a process with one thread that has computed nothing.

The main process has threads and connections, and must not fork; this one has
imported the kinds' libraries (so a new child is there in milliseconds and
shares their pages) and never runs them. It reports each child's end with its
wait status and its peak memory. Started by :mod:`worker.pool`; ends with its control socket.
"""

import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from tasks.catalog import load_kinds
from worker.child import serve
from worker.frames import LineBuffer, encode
from worker.process import Note, die_with_parent
from worker.settings import Settings

_MAX_FDS = 64
_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


class Spawner:
    """The loop over two file descriptors: requests to fork or kill, and ended children."""

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._requests = LineBuffer()
        self._children: dict[int, Note] = {}
        """By process id; each child notes the resident bytes with which its batch starts."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._is_ending = False
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self) -> None:
        """Serve until the main process closes the control socket or ends; then end all groups of children."""
        try:
            self._serve()
        finally:
            for pid in self._children:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)

    def _on_sigterm(self, *_: object) -> None:
        self._is_ending = True  # No exception: a child that was just forked would raise it, too.

    def _serve(self) -> None:
        while not self._is_ending:
            readable, _, _ = select.select([self._control.fileno(), self._wake_read], [], [])
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
                self._report_ended_children()
            if self._control.fileno() in readable and not self._serve_requests():
                return

    def _serve_requests(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, 65_536, _MAX_FDS)
        if not data:
            return False
        for request in self._requests.feed(data):
            if "spawn" in request:
                self._spawn(request["spawn"], socket.socket(fileno=fds.pop(0)))
            elif request["kill"] in self._children:
                # Only the parent may do this: until it has waited, the pid is not reused.
                os.killpg(request["kill"], request["signal"])
        return True

    def _spawn(self, serial: int, channel: socket.socket) -> None:
        parent_pid = os.getpid()
        start = Note()
        pid = os.fork()
        if pid == 0:
            self._become_child(channel, parent_pid, start)
        channel.close()
        with suppress(OSError):  # The child does the same; whichever comes first.
            os.setpgid(pid, pid)
        self._children[pid] = start
        self._control.sendall(encode({"spawned": serial, "pid": pid}))

    def _become_child(self, channel: socket.socket, parent_pid: int, start: Note) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            serve(channel, self._settings, parent_pid, start)
            status = 0
        except BaseException:  # noqa: BLE001 - the end of this process, told before it ends
            traceback.print_exc()
        finally:
            # Never unwind into the spawner's own frames, whatever happened.
            os._exit(status)

    def _report_ended_children(self) -> None:
        for pid in tuple(self._children):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                # What it has started holds memory as well. As long as any of that lives,
                # the number of the group is not given anew.
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
                start = self._children.pop(pid)
                peak_bytes = _peak_bytes(usage.ru_maxrss * _MAXRSS_UNIT_BYTES, start.read())
                start.close()
                self._control.sendall(encode({"ended": pid, "status": status, "peak_bytes": peak_bytes}))


def _peak_bytes(resident_bytes: int, start_bytes: int) -> int | None:
    """Return what a dead child's last batch had at its peak; None = unknown.

    The child resets the kernel's mark before each batch (worker/memory_meter.py), so the figure that wait4
    gives is that of the last one. It counts library pages that the batch was the first to touch.
    """
    return resident_bytes - start_bytes if 0 < start_bytes < resident_bytes else None


def main(control_fd: int, parent_pid: int) -> None:
    """Run the spawner on an inherited socket."""
    # Not SIGKILL: what children have started is ended here; their own death signal is for them alone.
    die_with_parent(parent_pid, signal.SIGTERM)
    settings = Settings()
    load_kinds(settings.kind_modules)
    control = socket.socket(fileno=control_fd)
    # The main process may end without having read all that we told it.
    with suppress(ConnectionError):
        control.sendall(encode({"ready": True}))
        Spawner(control, settings).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
