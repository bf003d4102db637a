"""Stands for the spawner and its children: real frames on real sockets, no process.

Only the processes are missing: what the main process says goes through its own
:class:`worker.spawner_link.SpawnerLink`.
"""

import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from worker.frames import BatchReport, BatchRequest, LineBuffer, encode
from worker.spawner_link import READ_BYTES, SpawnerLink

_FIRST_PID = 1 << 23
"""Above the greatest process id that the kernel gives: whoever looks for such a process finds none."""


class FakeChild:
    """One child, which does what a test says."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.request: BatchRequest | None = None
        """The batch that it works on, or whose memory it has kept."""
        self._reached = 0
        self._has_reported = False
        self._channel = channel
        self._lines = LineBuffer()

    @property
    def is_alive(self) -> bool:
        """Tell whether it has not ended."""
        return self._channel.fileno() >= 0

    @property
    def is_at_work(self) -> bool:
        """Tell whether it lives and has a batch whose callback is not through."""
        return self.is_alive and self.request is not None and not self._has_reported

    @property
    def open_items(self) -> int:
        """Return how many items of its batch have no outcome yet."""
        return 0 if self.request is None else len(self.request.payloads) - self._reached

    def read(self) -> bool:
        """Take the batch that was sent, if any; tell whether there was one."""
        if not self.is_alive:
            return False
        try:
            data = self._channel.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        for line in data.splitlines():
            self.request, self._reached, self._has_reported = BatchRequest.from_line(line), 0, False
        return bool(data)

    def tell_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Tell how the next item ended."""
        self._tell({"index": self._reached, "outcome": dict(outcome)})
        self._reached += 1

    def tell_report(self, *, retire: bool = False) -> None:
        """Tell that the callback is through; its memory is free unless it retires."""
        report = BatchReport(peak_bytes=1000, recorded_items=self._reached, retire=retire)
        self._tell({"report": asdict(report)})
        self._has_reported = True
        if not retire:
            self.request = None

    def close(self) -> None:
        """End."""
        self._channel.close()

    def _tell(self, frame: dict[str, Any]) -> None:
        if self.request is None:
            raise AssertionError("it has no batch to tell of")
        self._channel.sendall(encode({"batch_id": self.request.batch_id, **frame}))


class FakeSpawner:
    """The other end of a link, and all children that live."""

    def __init__(self, control: socket.socket) -> None:
        self.children: dict[int, FakeChild] = {}
        """Those that are not reaped yet: a dead one's memory may still be there."""
        self.peak_bytes: int | None = None
        """What it tells of each child that ends."""
        self.warned: list[int] = []
        """Those that were sent a signal for themselves."""
        self.unheeded: set[int] = set()
        """Signals that end nobody."""
        self._unreaped: deque[tuple[int, int]] = deque()
        self._control = control
        # Not by a flag: Python 3.11's recv_fds ignores it.
        control.setblocking(False)
        self._requests = LineBuffer()
        self._next_pid = _FIRST_PID

    def serve(self) -> bool:
        """Reap one child, else do what was asked for; tell whether there was anything."""
        if self._unreaped:
            pid, status = self._unreaped.popleft()
            del self.children[pid]
            self._control.sendall(encode({"ended": pid, "status": status, "peak_bytes": self.peak_bytes}))
            return True
        if self._control.fileno() < 0:
            return False
        try:
            data, fds, _, _ = socket.recv_fds(self._control, READ_BYTES, 64)
        except BlockingIOError:
            return False
        for request in self._requests.feed(data):
            if "spawn" in request:
                self._spawn(request["spawn"], socket.socket(fileno=fds.pop(0)))
            elif request["alone"]:
                self.warned.append(request["kill"])
            elif request["kill"] in self.children and request["signal"] not in self.unheeded:
                self.end_child(request["kill"], request["signal"])
        return bool(data)

    def end_child(self, pid: int, status: int) -> None:
        """Let a child end with a wait status; it is reaped, and only then reported, later."""
        if self.children[pid].is_alive:
            self.children[pid].close()
            self._unreaped.append((pid, int(status)))

    def end(self) -> None:
        """Die, and all children with it."""
        self._unreaped.clear()
        while self.children:
            self.children.popitem()[1].close()
        self._control.close()

    def _spawn(self, serial: int, channel: socket.socket) -> None:
        self._next_pid += 1
        self.children[self._next_pid] = FakeChild(self._next_pid, channel)
        self._control.sendall(encode({"spawned": serial, "pid": self._next_pid}))


class LinkToFake(SpawnerLink):
    """A link to a fake; ``on_start`` is told of each."""

    def __init__(self, on_start: Callable[[FakeSpawner], None]) -> None:
        self._control, theirs = socket.socketpair()
        self._frames = LineBuffer()
        self._fake = FakeSpawner(theirs)
        # The fake's children end as the real ones do: with their spawner, which ends with its socket.
        self._process: Any = SimpleNamespace(wait=self._fake.end)
        on_start(self._fake)

    def wait_until_ready(self) -> None:
        """Be ready."""
