"""Holds real parts: a server from the wheel, real workers, a stock client without Tiepoint."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from celery import Celery

from tests import waiting
from worker import keys
from worker.connections import plain_client
from worker.embedded import embedded_server

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
"""How long a test waits for something that must happen; never part of what it measures."""

wait_until = partial(waiting.wait_until, deadline_seconds=DEADLINE_SECONDS)


@pytest.fixture
def broker_url() -> Iterator[str]:
    """Return the URL of a fresh embedded server."""
    with embedded_server() as server:
        yield server.broker_url


@pytest.fixture
def redis_url(broker_url: str) -> str:
    """Return the server's URL in redis-py's spelling."""
    return broker_url.replace("redis+socket://", "unix://", 1)


@pytest.fixture
def server(redis_url: str) -> Iterator["redis.Redis"]:
    """Return a client of the fresh server."""
    client = plain_client(redis_url)
    yield client
    client.close()


@dataclass
class Worker:
    """One governed worker process and what it has logged."""

    process: "subprocess.Popen[Any]"
    name: str
    log_path: Path

    @property
    def log(self) -> str:
        """Return all that it has logged."""
        return self.log_path.read_text("utf-8", errors="replace")

    def children(self) -> list[psutil.Process]:
        """Return the pool's children (the spawner's children)."""
        with suppress(psutil.NoSuchProcess):
            spawners = psutil.Process(self.process.pid).children()
            return [child for spawner in spawners for child in spawner.children()]
        return []

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit code."""
        self.process.send_signal(signum)
        return self.process.wait(DEADLINE_SECONDS)


@dataclass
class Cluster:
    """One server, its workers, and a stock client."""

    broker_url: str
    server: "redis.Redis"
    folder: Path
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the store: a node whose store is gone waits for it."""
        self.store.mkdir(exist_ok=True)

    @property
    def stock(self) -> Celery:
        """Return a bare Celery app: all that a stock client has."""
        return Celery(broker=self.broker_url)

    @property
    def store(self) -> Path:
        """Return the root of the project store, as workers are told."""
        return self.folder / "store"

    def send(self, queue: str, *, task: str | None = None, **options: Any) -> str:
        """Send one job as a stock client does; return its id."""
        with self.stock as client:
            result = client.send_task(task or queue, queue=queue, **options)
        return str(result.id)

    def start_worker(
        self,
        name: str = "one",
        *,
        command: list[str] | None = None,
        start: Callable[..., "subprocess.Popen[Any]"] = subprocess.Popen,
        until_it_is_ready: bool = True,
        **settings: Any,
    ) -> Worker:
        """Start a governed worker and wait until it is registered; ``start`` may be a memory cgroup's."""
        log_path = self.folder / f"{name}.log"
        celery = [
            "-P",
            "-m",
            "celery",
            "-A",
            "worker.app",
            "worker",
            "--loglevel",
            "INFO",
            "--hostname",
            f"{name}@%h",
        ]
        celery += ["--without-mingle", "--without-gossip"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "TIEPOINT_BROKER_URL": self.broker_url,
            "TIEPOINT_NAME": name,
            "TIEPOINT_PROFILE": "dedicated",
            "TIEPOINT_STORE": str(self.store),
            "TIEPOINT_KIND_MODULES": '["tests.integration.noop_kinds"]',
            "TIEPOINT_LEASE_SECONDS": "2",
            # Each stands for a machine of its own.
            "TIEPOINT_LOCK_FOLDER": str(self.folder / "machines" / name),
            **{f"TIEPOINT_{key.upper()}": str(value) for key, value in settings.items()},
        }
        with log_path.open("wb") as log:
            process = start(
                command or [sys.executable, *celery], env=environment, stdout=log, stderr=log, cwd=self.folder
            )
        worker = Worker(process=process, name=name, log_path=log_path)
        self.workers.append(worker)
        if not until_it_is_ready:
            return worker
        wait_until(lambda: self._is_registered(name) or process.poll() is not None, f"{name} is registered")
        if process.poll() is not None:
            pytest.fail(f"{name} ended at once:\n{worker.log}")
        return worker

    def _is_registered(self, name: str) -> bool:
        """Tell whether a node has its lease, and clients see what it says of itself: that comes second."""
        has_lease = any(f"{name}|" in str(lease) for lease in self.server.zrange(keys.LEASES, 0, -1))
        return has_lease and bool(self.server.exists(keys.node(name)))

    def reserved_bytes(self, name: str) -> int:
        """Return what a node says is reserved on it (as of its last renewal)."""
        value = self.server.hget(keys.node(name), "reserved_memory_bytes")
        return int(value or 0)

    def counter(self, worker: Worker, name: str) -> int:
        """Ask a worker for one of its counts since its start; -1 where it does not answer in time."""
        host = f"{worker.name}@{socket.gethostname()}"
        with self.stock as client:
            replies: dict[str, Any] = dict(
                client.control.inspect([host], timeout=20.0, limit=1).stats() or {}
            )
        return int(replies[host]["governor"]["counters"][name]) if replies else -1

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send the only worker a remote command, once it listens to them; return its answer.

        It has its lease, and claims, before that: what is broadcast in between reaches nobody.
        """
        with self.stock as client:
            wait_until(partial(client.control.ping, timeout=1.0, limit=1), "the worker listens")
            replies: Any = client.control.broadcast(
                command, arguments=arguments, reply=True, timeout=30, limit=1
            )
        [answer] = replies[0].values()
        return dict(answer)

    def inflight(self) -> int:
        """Return how many messages are claimed and not settled."""
        return sum(int(self.server.hlen(key)) for key in self.server.scan_iter(keys.INFLIGHT_PREFIX + "*"))

    def dead(self) -> list[dict[str, Any]]:
        """Return the reports of failed jobs."""
        return [json.loads(report) for report in self.server.lrange(keys.DEAD, 0, -1)]

    def runs(self) -> list[tuple[int, int, int]]:
        """Return (job number, batch size, process id) of each time a no-op job ran."""
        log = self.folder / "runs"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(int(a), int(b), int(c)) for a, b, c in (line.split() for line in lines)]

    @property
    def run_log(self) -> str:
        """Return the file that no-op jobs report to."""
        return str(self.folder / "runs")


@pytest.fixture
def cluster(broker_url: str, server: "redis.Redis", tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster without workers; whatever runs at the end is killed."""
    cluster = Cluster(broker_url=broker_url, server=server, folder=tmp_path)
    yield cluster
    with killed(cluster.workers):
        pass


@contextmanager
def killed(workers: list[Worker]) -> Iterator[None]:
    """Kill at the end of the block whatever runs then."""
    yield
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Return a file of profiles that are far too short: each batch takes more than a nanosecond."""
    place = {"kind": "noop", "batch_class": 64, "occupancy": 0, "samples": 100}
    cell = {**place, "p50_ns": 1, "p95_ns": 1, "p99_ns": 1}
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps({"schema": 1, "conditions": {}, "cells": [cell]}))
    return path
