"""Plays a chaos run: does what is planned when it is due, sends jobs, and waits until all is quiet again."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from tests.acceptance.chaos_faults import FAULTS, Fault
from tests.acceptance.chaos_nodes import left_behind
from tests.acceptance.chaos_projects import Projects
from tests.acceptance.chaos_scene import Scene
from tests.acceptance.chaos_schedule import Planned
from worker import keys

_TICK_SECONDS = 0.05
_AGAIN_SECONDS = 0.2
_LOOK_SECONDS = 0.5
_SEND_SHARE = 0.4
"""The jobs are sent within this share of the time: nodes that have nothing to do have nothing to lose."""
_STOP_SECONDS = 60.0
_START_SECONDS = 120.0
_MANY_FAULTS = 20


@dataclass
class Play:
    """One run on a scene; for the main thread."""

    scene: Scene
    projects: Projects
    quiet_seconds: float
    """How long the queue may take to be empty after the last fault."""
    injected: int = 0
    overlapping: int = 0
    """Faults that happened while another was not healed."""
    _open: set[int] = field(default_factory=set)
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _started: float = 0.0

    def run(self, planned: Sequence[Planned], *, jobs: int, seconds: float) -> bool:
        """Do what is planned and send the jobs; True once all is quiet, False where that takes too long."""
        self._wait_for_machines()
        self._started = time.monotonic()
        for fault in planned:
            self._at(fault.at_seconds, partial(self._inject, fault))
        already, last_at = self.scene.sent, seconds * _SEND_SHARE
        for number in range(jobs):
            self._at(last_at * number / jobs, partial(self._send_up_to, already + number + 1))
        while self._due or self._now() < seconds:
            self._tick()
        return self._wait_for_quiet()

    def _wait_for_machines(self) -> None:
        """Begin when there is something to break; under load a worker takes long to start."""
        deadline = time.monotonic() + _START_SECONDS
        while not all(machine.is_at_work() for machine in self.scene.machines):
            if time.monotonic() > deadline:
                self.scene.complain(f"not all workers are at work after {_START_SECONDS:.0f} s")
                return
            time.sleep(_TICK_SECONDS)

    # -- What is due --------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _at(self, at_seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_seconds, next(self._numbers), action))

    def _tick(self) -> None:
        while self._due and self._due[0][0] <= self._now():
            heapq.heappop(self._due)[2]()
        self.projects.step()
        self._restart_what_has_ended()
        time.sleep(_TICK_SECONDS)

    def _send_up_to(self, wanted: int) -> None:
        while self.scene.sent < wanted:
            if not self.scene.send():
                self._at(self._now() + _AGAIN_SECONDS, partial(self._send_up_to, wanted))
                return

    def _inject(self, planned: Planned) -> None:
        kind = FAULTS[planned.name]
        if self.scene.is_stock and not kind.is_for_stock:
            return
        fault = kind.make(self.scene, planned.pick)
        whom = fault.inject()
        if not whom:
            return
        self.injected += 1
        self.overlapping += bool(self._open)
        number = next(self._numbers)
        self._open.add(number)
        self.scene.say(f"{planned.name}: {whom}, for {planned.for_seconds:.1f} s")
        self._at(self._now() + planned.for_seconds, partial(self._heal, fault, number))
        self.scene.look()

    def _heal(self, fault: Fault, number: int) -> None:
        if not fault.heal():
            self._at(self._now() + _AGAIN_SECONDS, partial(self._heal, fault, number))
            return
        self._open.discard(number)
        self.scene.look()

    def _restart_what_has_ended(self) -> None:
        """Do what a supervisor does; no worker may end without having been told to."""
        for machine in self.scene.machines:
            if not machine.down and machine.has_ended():
                log = machine.log_path.read_text("utf-8", errors="replace")[-400:]
                self.scene.complain(f"{machine.node_name} ended by itself ({machine.exit_code()}): {log}")
                machine.start()

    # -- The end ------------------------------------------------------------------------

    def _wait_for_quiet(self) -> bool:
        deadline = time.monotonic() + self.quiet_seconds
        next_look = 0.0
        while time.monotonic() < deadline:
            self._tick()
            if time.monotonic() < next_look:
                continue  # With ten thousand jobs a look takes a while.
            next_look = time.monotonic() + _LOOK_SECONDS
            if self.projects.are_over() and self.scene.is_quiet():
                return True
        waiting = sorted(self.scene.ledger.waiting)
        self.scene.complain(f"not quiet after {self.quiet_seconds:.0f} s; {len(waiting)} wait: {waiting[:5]}")
        return False


def take_down(scene: Scene, injected: int) -> None:
    """Stop everything, and note what is left behind that should not be."""
    if not scene.is_stock:
        _check_account(scene)
        if injected >= _MANY_FAULTS and not scene.ledger.given_back:
            scene.complain("no job was ever interrupted: this run shows nothing")
        _check_reservations(scene)
    for machine in scene.machines:
        if machine.stop(_STOP_SECONDS) is None and not scene.is_stock:
            scene.complain(f"{machine.node_name} did not end within {_STOP_SECONDS:.0f} s of SIGTERM")
    if scene.is_stock:
        return
    _check_keys(scene)
    scene.server.kill()
    for pid, command in left_behind(scene.folder):
        scene.complain(f"the process {pid} is left behind: {command}")


def _check_account(scene: Scene) -> None:
    """See that the account says what the server does: else none of its checks is worth anything."""
    scene.look()
    if (held := scene.held()) != scene.ledger.waiting:
        scene.complain(f"the account is wrong: {sorted(held ^ scene.ledger.waiting)[:5]}")


def _check_reservations(scene: Scene) -> None:
    deadline = time.monotonic() + 3 * scene.options.lease_seconds
    while time.monotonic() < deadline:
        reserved = {
            str(name): int(scene.client.hget(name, "reserved_memory_bytes") or 0)
            for name in scene.client.scan_iter(f"{keys.NODE_PREFIX}*")
        }
        if not any(reserved.values()):
            return
        time.sleep(_TICK_SECONDS)
    scene.complain(f"memory is still reserved: {reserved}")


def _check_keys(scene: Scene) -> None:
    """See that no key is left but those that are meant to stay."""
    stay = (keys.TICK, keys.DEAD, keys.TOTALS, keys.PROJECT_PREFIX, "_kombu.", "chaos:")
    names = [name.decode() for name in scene.client.scan_iter()]
    left = [name for name in names if not name.startswith(stay) and scene.client.ttl(name) == -1]
    if left:
        scene.complain(f"keys are left behind: {sorted(left)[:5]}")
