"""Holds what can happen in a chaos run: each fault is done, and later undone.

A fault that finds nobody to hit says so and does nothing. Does not cover when
which happens (:mod:`tests.acceptance.chaos_schedule`).
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis

from tests.acceptance.chaos_nodes import Machine
from tests.acceptance.chaos_scene import Scene
from tests.bench.reliability_kinds import ONE

END_SECONDS = 90.0
"""How long a worker that was asked to end may take."""
_CHANGE_OF_NAME = 0.25
"""This share of killed workers come back under another name."""


@dataclass
class Fault:
    """One fault; ``pick`` (0..1) says whom it hits."""

    scene: Scene
    pick: float
    started_ns: int = field(default_factory=time.monotonic_ns)

    def inject(self) -> str:
        """Do it; whom it has hit, empty for nobody."""
        raise NotImplementedError

    def heal(self) -> bool:
        """Undo it; False where that is not through, and has to be called again."""
        return True

    @property
    def rng(self) -> random.Random:
        """Return the randomness of this fault."""
        return random.Random(self.pick)

    def machine(self) -> Machine | None:
        """Return the machine that is hit, of those at work: who only just starts has nothing to lose."""
        at_work = [one for one in self.scene.machines if one.is_at_work()]
        return at_work[int(self.pick * len(at_work))] if at_work else None


class KillChild(Fault):
    """A process that runs jobs is killed, as the kernel does for want of memory."""

    def inject(self) -> str:
        """Kill it."""
        machine = self.machine()
        if machine is None or not (self.scene.is_stock or self.scene.may_kill(machine)):
            return ""
        children = [one for one in machine.children() if one.status() != psutil.STATUS_ZOMBIE]
        return _kill(self.rng.choice(children), machine) if children else ""


class KillSpawner(Fault):
    """The process that forks the children is killed, and they with it."""

    def inject(self) -> str:
        """Kill it."""
        machine = self.machine()
        if machine is None or not self.scene.may_kill(machine):
            return ""
        spawners = [one for one in machine.processes()[1:] if one.ppid() == machine.processes()[0].pid]
        return _kill(spawners[0], machine) if spawners else ""


class KillWorker(Fault):
    """A worker's main process is killed; what it leaves behind has to end by itself."""

    hit: Machine | None = None

    def inject(self) -> str:
        """Kill it."""
        self.hit = self.machine()
        if self.hit is None:
            return ""
        self.hit.down = True
        self.hit.send(signal.SIGKILL)
        return self.hit.node_name

    def heal(self) -> bool:
        """Start another in its place."""
        if self.hit is not None and self.hit.down and self.hit.has_ended():
            self.hit.start(under_another_name=self.rng.random() < _CHANGE_OF_NAME)
        return True


class KillNode(KillWorker):
    """All of a machine's processes are killed at once, as by a power cut."""

    def inject(self) -> str:
        """Kill them."""
        self.hit = self.machine()
        if self.hit is None:
            return ""
        self.hit.kill()
        return self.hit.node_name


class FreezeNode(Fault):
    """A machine stands still, longer than its lease, and goes on."""

    frozen: list[psutil.Process]

    def inject(self) -> str:
        """Stop its processes."""
        machine = self.machine()
        self.frozen = [] if machine is None else machine.processes()
        for process in self.frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        return machine.node_name if machine else ""

    def heal(self) -> bool:
        """Let them go on."""
        for process in reversed(self.frozen):
            with suppress(psutil.NoSuchProcess):
                process.resume()
        return True


class Terminate(KillWorker):
    """A worker is asked to end (SIGTERM), and started again: a rolling restart."""

    signum = signal.SIGTERM

    def inject(self) -> str:
        """Ask it."""
        self.hit = self.machine()
        if self.hit is None:
            return ""
        self.hit.down = True
        self.hit.send(self.signum)
        return self.hit.node_name

    def heal(self) -> bool:
        """Start another once it has ended."""
        if self.hit is None or not self.hit.down:
            return True
        if not self.hit.has_ended() and time.monotonic_ns() - self.started_ns < END_SECONDS * 1e9:
            return False
        if not self.hit.has_ended():
            self.scene.complain(
                f"{self.hit.node_name} did not end within {END_SECONDS:.0f} s of {self.signum.name}"
            )
            self.hit.kill()
        return super().heal()


class Quit(Terminate):
    """A worker is told to end at once (SIGQUIT), and started again."""

    signum = signal.SIGQUIT


class KillServer(Fault):
    """Redis is killed; it comes back with what its append-only file says."""

    def inject(self) -> str:
        """Kill it."""
        if self.scene.server.pid is None:
            return ""
        self.scene.server.kill()
        self.scene.is_server_frozen = False
        return "the server"

    def heal(self) -> bool:
        """Start it again."""
        if self.scene.server.pid is None:
            self.scene.server.start()
        return True


class FreezeServer(Fault):
    """Redis stands still, and goes on."""

    pid: int | None = None

    def inject(self) -> str:
        """Stop it."""
        self.pid = self.scene.server.pid
        if self.pid is None or self.scene.is_server_frozen:
            self.pid = None
            return ""
        os.kill(self.pid, signal.SIGSTOP)
        self.scene.is_server_frozen = True
        return "the server"

    def heal(self) -> bool:
        """Let it go on, if it was not killed meanwhile."""
        if self.pid is not None and self.pid == self.scene.server.pid:
            os.kill(self.pid, signal.SIGCONT)
            self.scene.is_server_frozen = False
        return True


class CutConnections(Fault):
    """Every connection to Redis is cut."""

    def inject(self) -> str:
        """Cut them."""
        if not self.scene.server_is_up:
            return ""
        try:
            cut = sum(
                int(self.scene.client.client_kill_filter(_type=sort, skipme=True))
                for sort in ("normal", "pubsub")
            )
        except redis.RedisError:
            return ""
        return f"{cut} connections"


class Damage(Fault):
    """A file of an artefact is cut off, changed, or gone."""

    def inject(self) -> str:
        """Damage one."""
        files = [path for path in self.scene.store.root.glob("artefacts/*/*/*") if path.is_file()]
        if not files:
            return ""
        path = self.rng.choice(sorted(files))
        how = self.rng.choice([_cut_off, _change, _remove])
        with suppress(OSError):
            path.chmod(0o600)
            how(path)
        return f"{how.__name__.strip('_')} {path.relative_to(self.scene.store.root)}"


class StoreAway(Fault):
    """The store is not there, as a network folder that has gone away."""

    moved = False

    def inject(self) -> str:
        """Move it away."""
        if self.scene.away.exists():
            return ""
        self.scene.store.root.rename(self.scene.away)
        self.moved = True
        return "the store"

    def heal(self) -> bool:
        """Put it back."""
        if not self.moved:
            return True
        if self.scene.store.root.exists():
            self.scene.complain("somebody made a new store while it was away")
            self.scene.store.root.rename(self.scene.folder / f"store.made{self.started_ns}")
        self.scene.away.rename(self.scene.store.root)
        return True


class DropMessage(Fault):
    """Sabotage: a waiting message vanishes. No run with it may end well."""

    def inject(self) -> str:
        """Take it away."""
        return "the next in line" if self.scene.client.rpop(ONE) else ""


class DoubleMessage(Fault):
    """Sabotage: a waiting message is there twice. No run with it may end well."""

    def inject(self) -> str:
        """Push it again."""
        text: Any = self.scene.client.lindex(ONE, -1)
        return "the next in line" if text and self.scene.client.lpush(ONE, text) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One row of what can happen."""

    make: Callable[[Scene, float], Fault]
    weight: float
    seconds: tuple[float, float]
    """The shortest and longest time until it is healed."""
    is_for_stock: bool = True
    is_restart: bool = False
    """Something ends and is started again."""
    is_sabotage: bool = False
    """Only by name, to see that the harness notices."""


FAULTS: Mapping[str, FaultKind] = {
    "kill_child": FaultKind(make=KillChild, weight=4, seconds=(0, 0)),
    "kill_spawner": FaultKind(make=KillSpawner, weight=1, seconds=(0, 0), is_for_stock=False),
    "kill_worker": FaultKind(make=KillWorker, weight=1.5, seconds=(0.2, 6), is_restart=True),
    "kill_node": FaultKind(make=KillNode, weight=1.5, seconds=(0.2, 6), is_restart=True),
    "freeze_node": FaultKind(make=FreezeNode, weight=1.5, seconds=(1, 7)),
    "terminate": FaultKind(make=Terminate, weight=1.5, seconds=(1, 3), is_restart=True),
    "quit": FaultKind(make=Quit, weight=1, seconds=(1, 3), is_restart=True),
    "kill_server": FaultKind(make=KillServer, weight=1, seconds=(0.1, 4), is_restart=True),
    "freeze_server": FaultKind(make=FreezeServer, weight=1, seconds=(0.5, 8)),
    "cut_connections": FaultKind(make=CutConnections, weight=1, seconds=(0, 0)),
    "damage": FaultKind(make=Damage, weight=1.5, seconds=(0, 0), is_for_stock=False),
    "store_away": FaultKind(make=StoreAway, weight=1, seconds=(0.2, 4), is_for_stock=False),
    "drop_message": FaultKind(make=DropMessage, weight=1, seconds=(0, 0), is_sabotage=True),
    "double_message": FaultKind(make=DoubleMessage, weight=1, seconds=(0, 0), is_sabotage=True),
}


def _kill(process: psutil.Process, machine: Machine) -> str:
    with suppress(psutil.NoSuchProcess):
        process.kill()
        return f"{process.pid} of {machine.node_name}"
    return ""


def _cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _remove(path: Path) -> None:
    path.unlink()


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
