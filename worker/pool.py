"""Holds the pool of child processes of one node, as a Celery pool class.

Celery starts, stops and inspects it; the puller gives it batches. Unlike
Celery's prefork pool it streams each item's outcome back, knows a child's end
the moment the kernel does, and kills whole process trees. Does not cover what
a batch's outcome means (:mod:`worker.running_batch`).
"""

import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from celery.concurrency.base import BasePool
from celery.exceptions import WorkerTerminate

from worker.deaths import Death, Ending
from worker.frames import BatchReport
from worker.logs import get_logger
from worker.memory_kills import MemoryKills
from worker.node import node_of
from worker.pool_child import PoolBatch, PoolChild
from worker.soft_limit import SIGNAL as SOFT_LIMIT_SIGNAL
from worker.spawner_link import SpawnerError, SpawnerLink, received
from worker.time_limits import TICK_SECONDS, Overrun, Ticks, cause

log = get_logger(__name__)

_MAX_SPAWNER_FAILURES = 3
_WITH_THE_SPAWNER = Death(ending=Ending.SPAWNER_LOST, cause="killed with the process that started it")


class GovernedPool(BasePool):
    """One child per CPU thread of the governor's budget; main thread only."""

    def __init__(self, limit: int | None = None, *, app: Any = None, **options: Any) -> None:
        self._node = node_of(app)
        super().__init__(min(limit or sys.maxsize, self._node.cpu_budget_threads), app=app, **options)
        self._children: dict[int, PoolChild] = {}
        self._waiting: deque[PoolBatch] = deque()
        self.on_room: Callable[[], None] = lambda: None
        """Called when there are new children: who found none idle may look again."""
        self.on_served: Callable[[], None] = lambda: None
        """Called after each round of a warm shutdown, when Celery's loop has ended: there may be news."""
        self._serial = 0
        self._hub: Any = None
        self._spawner: SpawnerLink | None = None
        self._spawner_failures = 0
        self._is_stopping = False
        self._ticks = Ticks(time.monotonic_ns())
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
        hub.call_repeatedly(TICK_SECONDS, self._on_tick)
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

    def _give(self, child: PoolChild, pid: int, batch: PoolBatch) -> None:
        kills_before = self._kills.counts()  # It may be killed as soon as it has the batch.
        try:
            child.channel.sendall(batch.request.to_line())
        except OSError:
            # It died idle, and its end is not reported yet: the batch is for another.
            child.is_retiring = True
            self._waiting.appendleft(batch)
            return
        child.take(batch, kills_before)
        batch.on_started(pid)

    def _on_channel(self, child: PoolChild) -> None:
        data = received(child.channel)
        if data is None:
            return
        if not data:
            # The end itself is handled when the spawner has reaped it.
            child.is_retiring = True
            self._stop_reading(child.channel.fileno())
        for frame in child.frames.feed(data):
            self._on_frame(child, frame)

    def _on_frame(self, child: PoolChild, frame: dict[str, Any]) -> None:
        batch = child.batch
        if batch is None or frame["batch_id"] != batch.request.batch_id:
            return
        if "is_warm" in frame:
            child.start_item()
            return
        if "outcome" in frame:
            batch.on_outcome(frame["index"], frame["outcome"])
            child.start_item()
            return
        report = BatchReport(**frame["report"])
        if not report.retire:
            child.finish()
        batch.on_report(report)
        if report.retire:
            self._retire(child)
        self._assign()

    # -- Time limits ------------------------------------------------------------------

    def _on_tick(self) -> None:
        """Look at the clock of whatever is at work, and at who lives on though told to end."""
        now_ns = time.monotonic_ns()
        pause_ns = self._ticks.pause_ns(now_ns)
        for child in self._children.values():
            if child.is_deaf:
                self._kill(child, signal.SIGKILL)
            elif child.clock is not None and not child.is_killed_on_request:
                child.clock.excuse(pause_ns, now_ns)
                self._enforce_limit(child, child.clock.overrun(now_ns))

    def _enforce_limit(self, child: PoolChild, overrun: Overrun | None) -> None:
        if overrun is None or child.clock is None or child.pid is None:
            return
        limit = child.clock.limit
        if overrun is Overrun.SOFT and self._spawner is not None:
            log.warning("soft_time_limit", pid=child.pid, seconds=limit.soft_seconds)
            self._spawner.kill(child.pid, SOFT_LIMIT_SIGNAL, alone=True)
        elif overrun is Overrun.HARD:
            log.warning("hard_time_limit", pid=child.pid, seconds=limit.hard_seconds)
            child.over_limit = Death(ending=Ending.TIME_LIMIT, cause=cause(overrun, limit.hard_seconds))
            self._retire(child)

    # -- Children ---------------------------------------------------------------------

    def _fill(self) -> None:
        """Start children until there are as many as the limit says."""
        before = self._serial
        while self._spawner is not None and not self._is_stopping and len(self._children) < self.limit:
            self._serial += 1
            child = PoolChild(
                serial=self._serial,
                channel=self._spawner.spawn(self._serial),
                kills_before=self._kills.counts(),
            )
            self._children[child.serial] = child
            if self._hub is not None:
                self._hub.add_reader(child.channel.fileno(), self._on_channel, child)
        if self._serial > before:
            self.on_room()

    def _retire(self, child: PoolChild) -> None:
        child.is_retiring = True
        self._kill(child, signal.SIGKILL)

    def _kill(self, child: PoolChild, signum: int | None) -> None:
        child.told_to_end_ns = child.told_to_end_ns or time.monotonic_ns()
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
        deaths = self._kills.judge([child.end_of(frame) for child, frame in ended])
        for (child, _), death in zip(ended, deaths, strict=True):
            self._remove(child, death)
        self._fill()

    def _drain(self, child: PoolChild) -> None:
        """Take what the child had still sent: those items are done, not suspects."""
        while data := received(child.channel):
            for frame in child.frames.feed(data):
                self._on_frame(child, frame)

    def _remove(self, child: PoolChild, death: Death) -> None:
        self._stop_reading(child.channel.fileno())
        child.channel.close()
        del self._children[child.serial]
        if not child.is_killed_on_request:
            log.warning("child_ended", pid=child.pid, cause=death.cause, peak_bytes=death.peak_bytes)
        if child.batch is None:
            return
        if child.over_limit is not None:
            over_limit = replace(child.over_limit, peak_bytes=death.peak_bytes)
            child.batch.on_child_gone(over_limit, on_request=False)
        else:
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
        readable, _, _ = select.select([spawner.fileno(), *channels], [], [], TICK_SECONDS)
        self._on_tick()
        for fd in readable:
            if fd in channels:
                self._on_channel(channels[fd])
            else:
                self._on_spawner()
        self.on_served()
