"""Forks the pool's children from a process with one thread that has computed nothing.

The main process has threads and connections, and must not fork; this one has
imported the kinds' libraries (so a new child is there in milliseconds and
shares their pages) and never runs them. It reports each child's end with its
wait status. Started by :mod:`worker.pool`; ends with its control socket.
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
from worker.process import die_with_parent
from worker.settings import Settings

_MAX_FDS = 64


class Spawner:
    """The loop over two file descriptors: requests to fork or kill, and ended children."""

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._requests = LineBuffer()
        self._children: set[int] = set()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the main process closes the control socket."""
        while True:
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
        pid = os.fork()
        if pid == 0:
            self._become_child(channel, parent_pid)
        channel.close()
        with suppress(OSError):  # The child does the same; whichever comes first.
            os.setpgid(pid, pid)
        self._children.add(pid)
        self._control.sendall(encode({"spawned": serial, "pid": pid}))

    def _become_child(self, channel: socket.socket, parent_pid: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            serve(channel, self._settings, parent_pid)
            status = 0
        except BaseException:  # noqa: BLE001 - the end of this process, told before it ends
            traceback.print_exc()
        finally:
            # Never unwind into the spawner's own frames, whatever happened.
            os._exit(status)

    def _report_ended_children(self) -> None:
        for pid in tuple(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._children.discard(pid)
                self._control.sendall(encode({"ended": pid, "status": status}))


def main(control_fd: int, parent_pid: int) -> None:
    """Run the spawner on an inherited socket."""
    die_with_parent(parent_pid)
    settings = Settings()
    load_kinds(settings.kind_modules)
    control = socket.socket(fileno=control_fd)
    # The main process may end without having read all that we told it.
    with suppress(ConnectionError):
        control.sendall(encode({"ready": True}))
        Spawner(control, settings).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
