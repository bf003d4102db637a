"""Starts one worker of the reliability bench, of either sort, and does to it what happens to workers.

Does not cover what is given to it (:mod:`tests.bench.reliability_scene`).
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis

from tests.bench import reliability_kinds
from tests.bench.queue_workers import running, wait_until_ready
from tests.bench.reliability_body import NODE
from tests.bench.reliability_kinds import NAMES
from tests.bench.reliability_stock import SETTINGS
from worker import keys
from worker.settings import PREFIX

VISIBILITY_SECONDS = 5.0
"""After so long stock takes a job that is not acknowledged for lost; as long as our lease in this bench."""
LEASE_SECONDS = 5.0
SWIFT_SWEEPS = {
    "broker_transport_options": {
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
}
"""Stock looks for lost jobs every second: the swiftest that is documented, for cases where that helps it."""
DEFAULT_SWEEPS = {"broker_transport_options": {"visibility_timeout": VISIBILITY_SECONDS}}
"""Stock looks 10 s after its start, then every 100 s."""
_CELERY = [sys.executable, "-P", "-m", "celery", "-A"]
_OPTIONS = ["worker", "--without-mingle", "--without-gossip", "--loglevel", "INFO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One worker: its main process and all below it."""

    name: str
    process: "subprocess.Popen[bytes]"
    log_path: Path
    workers_depth: int
    """How far below the main process those are that run jobs."""

    def children(self) -> list[psutil.Process]:
        """Return the processes that run jobs."""
        with suppress(psutil.NoSuchProcess):
            found = [psutil.Process(self.process.pid)]
            for _ in range(self.workers_depth):
                found = [child for one in found for child in one.children()]
            return found
        return []

    def freeze(self) -> None:
        """Stop all its processes, as a machine that stands still."""
        self._send(signal.SIGSTOP)

    def wake(self) -> None:
        """Let all its processes go on."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all its processes, frozen or not."""
        self._send(signal.SIGKILL)
        self.process.wait()

    def _send(self, signum: int) -> None:
        with suppress(psutil.NoSuchProcess):
            main = psutil.Process(self.process.pid)
            for one in [main, *main.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(signum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """One sort of worker: how it is started, and how it is seen that it is ready."""

    name: str
    command: Callable[[int], list[str]]
    """From the number of jobs at a time."""
    environment: Callable[["Setting"], Mapping[str, str]]
    is_ready: Callable[["redis.Redis", str], object]
    """From the server and the node's name."""
    workers_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a worker is started with."""

    name: str
    broker_url: str
    folder: Path
    processes: int
    """Jobs at a time."""
    stock: Mapping[str, Any] = field(default_factory=dict)
    """Celery's settings of this case."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """Our settings of this case."""
    lost_events: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def running_node(sort: Sort, setting: Setting, server: "redis.Redis") -> Iterator[Node]:
    """Run a worker; whatever of it runs at the end of the block is killed."""
    command = [*sort.command(setting.processes), "--hostname", f"{setting.name}@%h"]
    environment = {NODE: setting.name, **setting.lost_events, **sort.environment(setting)}
    with _without_our_settings(), running(setting.name, command, environment, setting.folder) as started:
        process, log_path = started
        node = Node(name=setting.name, process=process, log_path=log_path, workers_depth=sort.workers_depth)
        try:
            wait_until_ready(process, log_path, lambda: sort.is_ready(server, setting.name))
            yield node
        finally:
            node.kill()


@contextmanager
def _without_our_settings() -> Iterator[None]:
    """Let no setting of whoever runs the bench reach its workers."""
    ours = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
    try:
        yield
    finally:
        os.environ.update(ours)


def _stock_environment(setting: Setting) -> dict[str, str]:
    return {"BENCH_BROKER_URL": setting.broker_url, SETTINGS: json.dumps(setting.stock)}


def _our_environment(setting: Setting) -> dict[str, str]:
    chosen = {
        "broker_url": setting.broker_url,
        "name": setting.name,
        "profile": "dedicated",
        "cpus": setting.processes,
        "store": setting.folder / "store",
        # Each stands for a machine of its own.
        "lock_folder": setting.folder / "machines" / setting.name,
        "kind_modules": json.dumps([reliability_kinds.__name__]),
        "lease_seconds": LEASE_SECONDS,
        **setting.ours,
    }
    return {PREFIX + name.upper(): str(value) for name, value in chosen.items()}


STOCK = Sort(
    name="stock",
    command=lambda processes: [
        *_CELERY,
        "tests.bench.reliability_stock",
        *_OPTIONS,
        *("--queues", ",".join(NAMES), "--pool", "prefork", "--concurrency", str(processes)),
    ],
    environment=_stock_environment,
    # It binds its control mailbox once it consumes.
    is_ready=lambda server, name: any(
        f"{name}@" in str(bound) for bound in server.smembers("_kombu.binding.celery.pidbox")
    ),
    workers_depth=1,
)
TIEPOINT = Sort(
    name="tiepoint",
    command=lambda _: [*_CELERY, "tests.bench.reliability_governed", *_OPTIONS],
    environment=_our_environment,
    is_ready=lambda server, name: any(
        f"{name}|" in str(lease) for lease in server.zrange(keys.LEASES, 0, -1)
    ),
    workers_depth=2,
)
SORTS = (STOCK, TIEPOINT)
