"""Forks the pool's children from a process with one thread that has computed nothing.

The main process has threads and connections, and must not fork; this one has
imported the kinds' libraries (so a new child is there in milliseconds and
shares their pages) and never runs them. It reports each child's end with its
wait status and its peak memory, once all that the child had started is gone too.
Started by :mod:`worker.pool`; ends with its control socket.
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
from worker.process_tree import adopt_orphans, children, end_children, kill_all
from worker.settings import Settings

_MAX_FDS = 64
_LOOK_AGAIN_SECONDS = 0.1
"""While something that a dead child has left is about to end."""
_END_WITHIN_SECONDS = 4.0
_MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


class Spawner:
    """The loop over two file descriptors: requests to fork or kill, and ended children."""

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._requests = LineBuffer()
        self._children: dict[int, Note] = {}
        """By process id; each child notes the resident bytes with which its batch starts."""
        self._ended: dict[int, dict[str, object]] = {}
        """What to report of children that are dead, once what they have left behind is gone."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._is_ending = False
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(self) -> None:
        """Serve until the main process closes the control socket or ends; then end all that is below."""
        try:
            self._serve()
        finally:
            for pid in self._children:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            end_children(within_seconds=_END_WITHIN_SECONDS)

    def _on_sigterm(self, *_: object) -> None:
        self._is_ending = True  # No exception: a child that was just forked would raise it, too.

    def _serve(self) -> None:
        while not self._is_ending:
            wait_seconds = _LOOK_AGAIN_SECONDS if self._ended else None
            readable, _, _ = select.select([self._control.fileno(), self._wake_read], [], [], wait_seconds)
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
            if self._wake_read in readable or self._ended:
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
                _send(request["kill"], request["signal"], alone=request["alone"])
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
        """Report who has ended; the memory of what they had started is theirs, so that ends first."""
        while (ended := _wait_for_any()) is not None:
            pid, status, resident_bytes = ended
            if pid in self._children:
                # As long as any of its group lives, the group's number is not given anew.
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
                start = self._children.pop(pid)
                peak_bytes = _peak_bytes(resident_bytes, start.read())
                start.close()
                self._ended[pid] = {"ended": pid, "status": status, "peak_bytes": peak_bytes}
        # Whatever else is our child was handed down by a dead one: the living keep their own.
        if self._ended and not kill_all(children().difference(self._children)):
            self._control.sendall(b"".join(encode(report) for report in self._ended.values()))
            self._ended.clear()


def _send(pid: int, signum: int, *, alone: bool) -> None:
    """Send a signal to a child and its group; to the child itself where that has left its group.

    Only the parent may do this: until it has waited, the pid is not reused. What
    is no signal (`celery control terminate 999`) is not worth our end.
    """
    if not alone:
        with suppress(OSError):
            os.killpg(pid, signum)
            return
    with suppress(OSError):
        os.kill(pid, signum)


def _wait_for_any() -> tuple[int, int, int] | None:
    """Return process id, wait status and most resident bytes of a child that has ended; None: no more."""
    try:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status, usage.ru_maxrss * _MAXRSS_UNIT_BYTES) if pid else None


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
    adopt_orphans()
    settings = Settings()
    load_kinds(settings.kind_modules)
    control = socket.socket(fileno=control_fd)
    # The main process may end without having read all that we told it.
    with suppress(ConnectionError):
        control.sendall(encode({"ready": True}))
        Spawner(control, settings).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
