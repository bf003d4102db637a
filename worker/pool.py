"""Holds the pool of child processes of one node, as a Celery pool class.

Celery starts, stops and inspects it; the consumer gives it batches. Unlike
Celery's prefork pool it streams each item's outcome back, knows a child's end
the moment the kernel does, and kills whole process trees. Does not cover what
a batch's outcome means (:mod:`worker.running_batch`).
"""

import select
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from os import WIFSIGNALED, WTERMSIG, getpid, waitstatus_to_exitcode
from typing import Any, Protocol

from celery.concurrency.base import BasePool
from celery.exceptions import WorkerTerminate

from worker.frames import BatchReport, BatchRequest, LineBuffer, encode
from worker.logs import get_logger
from worker.node import node_of

log = get_logger(__name__)

_READ_BYTES = 1 << 20


class PoolBatch(Protocol):
    """What the pool tells the owner of a batch; all calls come from the main thread."""

    request: BatchRequest

    def on_started(self, pid: int) -> None:
        """Tell that a child has the batch."""

    def on_outcome(self, index: int, outcome: dict[str, Any]) -> None:
        """Tell that one item is through."""

    def on_report(self, report: BatchReport) -> None:
        """Tell that the callback is through; nothing more comes unless the child is retired."""

    def on_child_gone(self, cause: str) -> None:
        """Tell that the child of this batch is dead and reaped."""


@dataclass(slots=True, kw_only=True)
class _Child:
    serial: int
    channel: socket.socket
    pid: int | None = None
    batch: PoolBatch | None = None
    retiring: bool = False
    frames: LineBuffer = field(default_factory=LineBuffer)


class GovernedPool(BasePool):
    """One child per CPU thread of the governor's budget; main thread only."""

    def __init__(self, limit: int | None = None, *, app: Any = None, **options: Any) -> None:
        self._node = node_of(app)
        super().__init__(min(limit or sys.maxsize, self._node.cpu_budget_threads), app=app, **options)
        self._children: dict[int, _Child] = {}
        self._waiting: deque[PoolBatch] = deque()
        self._serial = 0
        self._hub: Any = None
        self._spawner: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._control_frames = LineBuffer()
        self._stopping = False

    # -- What Celery calls ------------------------------------------------------------

    def on_start(self) -> None:
        """Start the spawner and all children."""
        self._start_spawner()
        for _ in range(self.limit):
            self._add_child()

    def register_with_event_loop(self, hub: Any) -> None:
        """Read from the spawner and the children in Celery's event loop."""
        self._hub = hub
        if self._control is not None:
            hub.add_reader(self._control.fileno(), self._on_control)
        for child in self._children.values():
            hub.add_reader(child.channel.fileno(), self._on_channel, child)

    def on_stop(self) -> None:
        """Let running batches end (a warm shutdown), then end the children."""
        self._stopping = True
        self._hub = None
        while any(child.batch for child in self._children.values()) and self._control is not None:
            self._serve_until_readable()
        self.on_terminate()

    def on_terminate(self) -> None:
        """Kill all children at once (a cold shutdown)."""
        self._stopping = True
        self._hub = None
        if self._control is not None:
            # The spawner ends with its control socket, and the children with the spawner.
            self._control.close()
            self._control = None
        if self._spawner is not None:
            self._spawner.wait()
            self._spawner = None
        for child in self._children.values():
            child.channel.close()
        self._children.clear()

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Send a signal to a child and all it has started."""
        self._ask_to_kill(pid, signal)

    def grow(self, n: int = 1) -> None:
        """Add children (``celery control pool_grow``); the governor's budget still binds."""
        for _ in range(n):
            self.limit += 1
            self._add_child()

    def shrink(self, n: int = 1) -> None:
        """Remove idle children (``celery control pool_shrink``)."""
        idle = [child for child in self._children.values() if child.batch is None and child.pid is not None]
        for child in idle[: min(n, self.limit - 1)]:
            self.limit -= 1
            self._retire(child)

    def _get_info(self) -> dict[str, Any]:
        children = self._children.values()
        return {
            **super()._get_info(),  # type: ignore[misc]  # missing in the stubs
            "processes": [child.pid for child in children],
            "busy": sum(child.batch is not None for child in children),
        }

    @property
    def num_processes(self) -> int:
        """Return how many children there are."""
        return len(self._children)

    # -- What the consumer calls ------------------------------------------------------

    def submit(self, batch: PoolBatch) -> None:
        """Give a batch to an idle child, or to the next one that is."""
        self._waiting.append(batch)
        self._assign()

    def kill_batch(self, batch: PoolBatch) -> None:
        """Kill the child that runs this batch, with all it has started."""
        for child in self._children.values():
            if child.batch is batch and child.pid is not None:
                self._ask_to_kill(child.pid, signal.SIGKILL)

    # -- Batches ----------------------------------------------------------------------

    def _assign(self) -> None:
        for child in tuple(self._children.values()):
            if not self._waiting:
                return
            if child.pid is not None and child.batch is None and not child.retiring:
                child.batch = self._waiting.popleft()
                child.channel.sendall(child.batch.request.to_line())
                child.batch.on_started(child.pid)

    def _on_channel(self, child: _Child) -> None:
        data = _received(child.channel)
        if data is None:
            return
        if not data:
            # The end itself is handled when the spawner has reaped it.
            self._stop_reading(child)
        for frame in child.frames.feed(data):
            self._on_frame(child, frame)

    def _on_frame(self, child: _Child, frame: dict[str, Any]) -> None:
        batch = child.batch
        if batch is None or frame["batch_id"] != batch.request.batch_id:
            return
        if "outcome" in frame:
            batch.on_outcome(frame["index"], frame["outcome"])
            return
        report = BatchReport(**frame["report"])
        if report.retire:
            self._retire(child)
        else:
            child.batch = None
        batch.on_report(report)
        self._assign()

    # -- Children ---------------------------------------------------------------------

    def _start_spawner(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "worker.spawner", str(theirs.fileno()), str(getpid())]
        # Started from the main thread: the children's death signal hangs on it.
        self._spawner = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], start_new_session=True, env=self._node.child_environment()
        )
        theirs.close()
        if not ours.recv(1):
            # Whatever it printed names the cause, e.g. a kind's module that cannot be imported.
            raise WorkerTerminate(1)
        self._control = ours
        self._control_frames = LineBuffer()
        if self._hub is not None:
            self._hub.add_reader(ours.fileno(), self._on_control)

    def _add_child(self) -> None:
        if self._control is None:
            return
        self._serial += 1
        ours, theirs = socket.socketpair()
        socket.send_fds(self._control, [encode({"spawn": self._serial})], [theirs.fileno()])
        theirs.close()
        child = _Child(serial=self._serial, channel=ours)
        self._children[child.serial] = child
        if self._hub is not None:
            self._hub.add_reader(ours.fileno(), self._on_channel, child)

    def _retire(self, child: _Child) -> None:
        child.retiring = True
        if child.pid is not None:
            self._ask_to_kill(child.pid, signal.SIGKILL)

    def _ask_to_kill(self, pid: int, signum: int | None) -> None:
        if self._control is not None:
            self._control.sendall(encode({"kill": pid, "signal": int(signum or signal.SIGTERM)}))

    def _on_control(self) -> None:
        if self._control is None:
            return
        data = _received(self._control)
        if data is None:
            return
        if not data:
            self._on_spawner_gone()
        for frame in self._control_frames.feed(data):
            if "spawned" in frame:
                self._on_spawned(frame["spawned"], frame["pid"])
            else:
                self._on_ended(frame["ended"], frame["status"])

    def _on_spawned(self, serial: int, pid: int) -> None:
        if serial in self._children:
            self._children[serial].pid = pid
            self._assign()

    def _on_ended(self, pid: int, status: int) -> None:
        child = next((child for child in self._children.values() if child.pid == pid), None)
        if child is None:
            return
        self._drain(child)
        self._remove(child, _cause_of_death(status))

    def _drain(self, child: _Child) -> None:
        """Take what the child had still sent: those items are done, not suspects."""
        while data := _received(child.channel):
            for frame in child.frames.feed(data):
                self._on_frame(child, frame)

    def _remove(self, child: _Child, cause: str) -> None:
        self._stop_reading(child)
        child.channel.close()
        del self._children[child.serial]
        if not child.retiring:
            log.warning("child_ended", pid=child.pid, cause=cause)
        if not self._stopping and len(self._children) < self.limit:
            self._add_child()
        if child.batch is not None:
            child.batch.on_child_gone(cause)

    def _on_spawner_gone(self) -> None:
        """Start over: with the spawner all children are dead."""
        log.error("spawner_ended", cure="all children are replaced")
        if self._control is not None:
            if self._hub is not None:
                self._hub.remove(self._control.fileno())
            self._control.close()
            self._control = None
        if self._spawner is not None:
            self._spawner.wait()
        if not self._stopping:
            self._start_spawner()
        for child in tuple(self._children.values()):
            self._remove(child, "the process that started it ended")

    def _stop_reading(self, child: _Child) -> None:
        if self._hub is not None and child.channel.fileno() >= 0:
            self._hub.remove(child.channel.fileno())

    def _serve_until_readable(self) -> None:
        """Handle one round of frames outside of Celery's event loop."""
        channels = {child.channel.fileno(): child for child in self._children.values() if child.batch}
        if self._control is None:
            return
        readable, _, _ = select.select([self._control.fileno(), *channels], [], [])
        for fd in readable:
            if fd in channels:
                self._on_channel(channels[fd])
            else:
                self._on_control()


def _received(channel: socket.socket) -> bytes | None:
    """Return what there is to read: nothing yet is None, the end is empty.

    Never blocks: in one round of its loop the hub may report a descriptor that
    was closed and is another, still silent channel by now.
    """
    try:
        return channel.recv(_READ_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _cause_of_death(status: int) -> str:
    """Say in words how a child ended, from its wait status."""
    if WIFSIGNALED(status):
        return f"killed by {signal.Signals(WTERMSIG(status)).name}"
    return f"exited with status {waitstatus_to_exitcode(status)}"
