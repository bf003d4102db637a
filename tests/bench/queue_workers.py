"""Starts the two workers of the queue bench: stock Celery prefork, and ours. Does not measure them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.bench import queue_kinds
from tests.bench.queue_side import QueueBenchError, WorkerSide
from worker import keys

CONCURRENCY = 2
_REPOSITORY = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_COMMAND = [sys.executable, "-P", "-m", "celery"]
_OPTIONS = ["worker", "--without-mingle", "--without-gossip", "--loglevel", "WARNING"]


@contextmanager
def stock_worker(broker_url: str, server: "redis.Redis", folder: Path) -> Iterator[WorkerSide]:
    """Run a stock worker for the time of the block."""
    command = [*_COMMAND, "-A", "tests.bench.queue_stock", *_OPTIONS, "--hostname", "stock@%h"]
    command += ["--pool", "prefork", "--concurrency", str(CONCURRENCY)]
    with running("stock", command, {"BENCH_BROKER_URL": broker_url}, folder) as (process, log_path):
        # It binds its control mailbox once it consumes.
        wait_until_ready(process, log_path, lambda: server.exists("_kombu.binding.celery.pidbox"))
        yield WorkerSide(process, log_path, server, "unacked")


@contextmanager
def governed_worker(broker_url: str, server: "redis.Redis", folder: Path) -> Iterator[WorkerSide]:
    """Run a governed worker for the time of the block."""
    command = [*_COMMAND, "-A", "tests.bench.queue_governed", *_OPTIONS, "--hostname", "governed@%h"]
    environment = {
        "TIEPOINT_BROKER_URL": broker_url,
        "TIEPOINT_NAME": "governed",
        "TIEPOINT_PROFILE": "dedicated",
        "TIEPOINT_CPUS": str(CONCURRENCY),
        "TIEPOINT_STORE": str(folder / "store"),
        # A worker of this machine's owner is none of the bench's business.
        "TIEPOINT_LOCK_FOLDER": str(folder),
        "TIEPOINT_KIND_MODULES": f'["{queue_kinds.__name__}"]',
    }
    with running("governed", command, environment, folder) as (process, log_path):
        wait_until_ready(process, log_path, lambda: server.zcard(keys.LEASES))
        leases: Any = server.zrange(keys.LEASES, 0, -1)
        yield WorkerSide(process, log_path, server, keys.inflight(leases[0].decode()))


@contextmanager
def running(
    name: str, command: list[str], environment: Mapping[str, str], folder: Path
) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run a worker for the time of the block; the process and what it logs to."""
    log_path = folder / f"{name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY), **environment},
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        yield process, log_path
    finally:
        process.terminate()
        try:
            process.wait(_START_SECONDS)
        finally:
            process.kill()
            process.wait()


def wait_until_ready(
    process: "subprocess.Popen[bytes]", log_path: Path, is_ready: Callable[[], object]
) -> None:
    """Wait until a worker is ready.

    Raises:
        QueueBenchError: it ended, or was not ready in time.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise QueueBenchError(
                f"{log_path.stem} did not start: {log_path.read_text('utf-8', 'replace')[-500:]}"
            )
        time.sleep(0.05)
