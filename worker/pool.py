"""Holds the pool of child processes of one node, as a Celery pool class.

Celery starts, stops and inspects it; the puller gives it batches. Unlike
Celery's prefork pool it streams each item's outcome back, knows a child's end
the moment the kernel does, and kills whole process trees. Does not cover what
a batch's outcome means (:mod:`worker.running_batch`).
"""

import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from celery.concurrency.base import BasePool
from celery.exceptions import WorkerTerminate

from worker.deaths import Death, Ending
from worker.frames import BatchReport, BatchRequest, LineBuffer
from worker.logs import get_logger
from worker.memory_kills import EndedChild, KillCounts, MemoryKills
from worker.node import node_of
from worker.spawner_link import SpawnerError, SpawnerLink, received

log = get_logger(__name__)

_MAX_SPAWNER_FAILURES = 3
_WITH_THE_SPAWNER = Death(ending=Ending.KILLED, cause="killed with the process that started it")


class PoolBatch(Protocol):
    """What the pool tells the owner of a batch; all calls come from the main thread."""

    request: BatchRequest

    def on_started(self, pid: int) -> None:
        """Tell that a child has the batch."""

    def on_outcome(self, index: int, outcome: dict[str, Any]) -> None:
        """Tell that one item is through."""

    def on_report(self, report: BatchReport) -> None:
        """Tell that the callback is through; nothing more comes unless the child is retired."""

    def on_child_gone(self, death: Death, *, on_request: bool) -> None:
        """Tell that the child of this batch is dead and reaped; ``on_request``: we had it killed."""

    def on_abandoned(self) -> None:
        """Tell that the node ends with the batch unfinished; its messages go back with the lease."""


@dataclass(slots=True, kw_only=True)
class _Child:
    serial: int
    channel: socket.socket
    kills_before: KillCounts
    """The kernel's counts of memory kills when it was given its last batch."""
    pid: int | None = None
    batch: PoolBatch | None = None
    is_retiring: bool = False
    """Gets no further batch: it is being replaced, or has closed its channel."""
    is_killed_on_request: bool = False
    kinds: set[str] = field(default_factory=set)
    """It has been given batches of these, and so has loaded what they need."""
    frames: LineBuffer = field(default_factory=LineBuffer)

    @property
    def is_idle(self) -> bool:
        return self.batch is None and not self.is_retiring


class GovernedPool(BasePool):
    """One child per CPU thread of the governor's budget; main thread only."""

    def __init__(self, limit: int | None = None, *, app: Any = None, **options: Any) -> None:
        self._node = node_of(app)
        super().__init__(min(limit or sys.maxsize, self._node.cpu_budget_threads), app=app, **options)
        self._children: dict[int, _Child] = {}
        self._waiting: deque[PoolBatch] = deque()
        self._serial = 0
        self._hub: Any = None
        self._spawner: SpawnerLink | None = None
        self._spawner_failures = 0
        self._is_stopping = False
        self._kills = MemoryKills.within(self._node.limits)
        self._node.held_memory.child_pids = self._pids
        self._node.held_memory.idle_pids = self._idle_pids

    # -- What Celery calls ------------------------------------------------------------

    def on_start(self) -> None:
        """Start the spawner and all children."""
        self._spawner = SpawnerLink(self._node.child_environment())
        try:
            self._spawner.wait_until_ready()
        except SpawnerError as error:
            raise WorkerTerminate(1) from error
        self._fill()

    def register_with_event_loop(self, hub: Any) -> None:
        """Read from the spawner and the children in Celery's event loop."""
        self._hub = hub
        if self._spawner is not None:
            hub.add_reader(self._spawner.fileno(), self._on_spawner)
        for child in self._children.values():
            hub.add_reader(child.channel.fileno(), self._on_channel, child)

    def on_stop(self) -> None:
        """Let running batches end (a warm shutdown), then end the children."""
        self._is_stopping = True
        self._hub = None
        while self._spawner is not None and any(child.batch for child in self._children.values()):
            self._serve_outside_the_loop(self._spawner)
        self.on_terminate()

    def on_terminate(self) -> None:
        """Kill all children at once (a cold shutdown)."""
        self._is_stopping = True
        self._hub = None
        self._close_spawner()
        for child in self._children.values():
            child.channel.close()
            if child.batch is not None:
                child.batch.on_abandoned()
        self._children.clear()
        while self._waiting:
            self._waiting.popleft().on_abandoned()

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Send a signal to a child and all it has started."""
        for child in self._children.values():
            if child.pid == pid:
                self._kill(child, signal)

    def grow(self, n: int = 1) -> None:
        """Add children (``celery control pool_grow``); the governor's budget still binds."""
        self.limit += n
        self._fill()

    def shrink(self, n: int = 1) -> None:
        """Remove idle children (``celery control pool_shrink``)."""
        idle = [child for child in self._children.values() if child.is_idle and child.pid is not None]
        for child in idle[: min(n, self.limit - 1)]:
            self.limit -= 1
            self._retire(child)

    def _pids(self) -> list[int]:
        """Return the living children; any thread may ask."""
        return [child.pid for child in list(self._children.values()) if child.pid is not None]

    def _idle_pids(self) -> list[int]:
        """Return the living children without a batch; any thread may ask."""
        return [
            child.pid
            for child in list(self._children.values())
            if child.pid is not None and child.batch is None
        ]

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

    # -- What the puller calls --------------------------------------------------------

    @property
    def idle_children(self) -> int:
        """Return how many batches would get a child at once, or as soon as one that starts is there."""
        return sum(child.is_idle for child in self._children.values()) - len(self._waiting)

    def submit(self, batch: PoolBatch) -> None:
        """Give a batch to an idle child, or to the next one that is."""
        self._waiting.append(batch)
        self._assign()

    # -- Batches ----------------------------------------------------------------------

    def _assign(self) -> None:
        while self._waiting:
            idle = [
                (child, child.pid)
                for child in self._children.values()
                if child.is_idle and child.pid is not None
            ]
            if not idle:
                return
            kind = self._waiting[0].request.kind
            # What a kind loads stays in the child, reserved by nobody: few should hold it.
            child, pid = min(idle, key=lambda one: (kind not in one[0].kinds, len(one[0].kinds)))
            self._give(child, pid, self._waiting.popleft())

    def _give(self, child: _Child, pid: int, batch: PoolBatch) -> None:
        kills_before = self._kills.counts()  # It may be killed as soon as it has the batch.
        try:
            child.channel.sendall(batch.request.to_line())
        except OSError:
            # It died idle, and its end is not reported yet: the batch is for another.
            child.is_retiring = True
            self._waiting.appendleft(batch)
            return
        child.batch = batch
        child.kinds.add(batch.request.kind)
        child.kills_before = kills_before
        batch.on_started(pid)

    def _on_channel(self, child: _Child) -> None:
        data = received(child.channel)
        if data is None:
            return
        if not data:
            # The end itself is handled when the spawner has reaped it.
            child.is_retiring = True
            self._stop_reading(child.channel.fileno())
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
        if not report.retire:
            child.batch = None
        batch.on_report(report)
        if report.retire:
            self._retire(child)
        self._assign()

    # -- Children ---------------------------------------------------------------------

    def _fill(self) -> None:
        """Start children until there are as many as the limit says."""
        while self._spawner is not None and not self._is_stopping and len(self._children) < self.limit:
            self._serial += 1
            child = _Child(
                serial=self._serial,
                channel=self._spawner.spawn(self._serial),
                kills_before=self._kills.counts(),
            )
            self._children[child.serial] = child
            if self._hub is not None:
                self._hub.add_reader(child.channel.fileno(), self._on_channel, child)

    def _retire(self, child: _Child) -> None:
        child.is_retiring = True
        self._kill(child, signal.SIGKILL)

    def _kill(self, child: _Child, signum: int | None) -> None:
        child.is_killed_on_request = True
        if self._spawner is not None and child.pid is not None:
            self._spawner.kill(child.pid, signum or signal.SIGTERM)

    def _on_spawner(self) -> None:
        if self._spawner is None:
            return
        frames = self._spawner.receive()
        if frames is None:
            self._replace_spawner()
            return
        if frames:
            self._spawner_failures = 0
        for frame in frames:
            if "spawned" in frame:
                self._on_spawned(frame["spawned"], frame["pid"])
        self._on_ended([frame for frame in frames if "ended" in frame])

    def _on_spawned(self, serial: int, pid: int) -> None:
        if serial in self._children:
            self._children[serial].pid = pid
            self._assign()

    def _on_ended(self, frames: Sequence[dict[str, Any]]) -> None:
        """Judge the deaths that were heard of together: one kill by the kernel explains one of them."""
        by_pid = {child.pid: child for child in self._children.values() if child.pid is not None}
        ended = [(by_pid[frame["ended"]], frame) for frame in frames if frame["ended"] in by_pid]
        for child, _ in ended:
            child.is_retiring = True
            self._drain(child)
        deaths = self._kills.judge([_ended(child, frame) for child, frame in ended])
        for (child, _), death in zip(ended, deaths, strict=True):
            self._remove(child, death)
        self._fill()

    def _drain(self, child: _Child) -> None:
        """Take what the child had still sent: those items are done, not suspects."""
        while data := received(child.channel):
            for frame in child.frames.feed(data):
                self._on_frame(child, frame)

    def _remove(self, child: _Child, death: Death) -> None:
        self._stop_reading(child.channel.fileno())
        child.channel.close()
        del self._children[child.serial]
        if not child.is_killed_on_request:
            log.warning("child_ended", pid=child.pid, cause=death.cause, peak_bytes=death.peak_bytes)
        if child.batch is not None:
            child.batch.on_child_gone(death, on_request=child.is_killed_on_request)

    def _replace_spawner(self) -> None:
        """Start over: with the spawner all children are dead."""
        self._spawner_failures += 1
        log.error("spawner_ended", failures=self._spawner_failures, cure="all children are replaced")
        self._close_spawner()
        for child in self._children.values():
            child.is_retiring = True
        for child in tuple(self._children.values()):
            self._drain(child)
            self._remove(child, _WITH_THE_SPAWNER)
        if self._is_stopping:
            return
        if self._spawner_failures >= _MAX_SPAWNER_FAILURES:
            raise WorkerTerminate(1)
        self._spawner = SpawnerLink(self._node.child_environment())
        if self._hub is not None:
            self._hub.add_reader(self._spawner.fileno(), self._on_spawner)
        self._fill()

    def _close_spawner(self) -> None:
        if self._spawner is not None:
            self._stop_reading(self._spawner.fileno())
            self._spawner.close([child.pid for child in self._children.values() if child.pid is not None])
            self._spawner = None

    def _stop_reading(self, fd: int) -> None:
        if self._hub is not None and fd >= 0:
            self._hub.remove(fd)

    def _serve_outside_the_loop(self, spawner: SpawnerLink) -> None:
        """Handle one round of frames while Celery's event loop has ended."""
        channels = {
            child.channel.fileno(): child
            for child in self._children.values()
            if child.batch and not child.is_retiring
        }
        readable, _, _ = select.select([spawner.fileno(), *channels], [], [])
        for fd in readable:
            if fd in channels:
                self._on_channel(channels[fd])
            else:
                self._on_spawner()


def _ended(child: _Child, frame: dict[str, Any]) -> EndedChild:
    """Return what is known of a dead child; its peak is of the batch that it had, if any."""
    batch = child.batch
    return EndedChild(
        status=frame["status"],
        is_unasked=not child.is_killed_on_request,
        before=child.kills_before,
        reserved_bytes=0 if batch is None else batch.request.grant.memory_bytes,
        peak_bytes=None if batch is None else frame["peak_bytes"],
    )
