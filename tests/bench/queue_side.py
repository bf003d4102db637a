"""Runs one worker of the queue bench as a process of its own, and measures it from outside.

Both sorts of worker are measured by the same functions: jobs are given by one
Redis command, and a job is over when Redis holds it neither in its queue nor
among the taken ones. Does not cover what is compared (:mod:`tests.bench.queue`).
"""

import os
import selectors
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from tests.bench.queue_body import START
from tests.bench.queue_messages import Template

POLL_SECONDS = 0.003
TIMEOUT_SECONDS = 300.0


class QueueBenchError(Exception):
    """A worker has hung or ended; the text says which, and its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """One full queue, from its appearance to its last job's end."""

    jobs: int
    seconds: float
    main_cpu_seconds: float
    """Of the process that talks to Redis."""
    pool_cpu_seconds: float
    """Of all processes below it."""

    @property
    def jobs_per_second(self) -> float:
        """Return the throughput."""
        return self.jobs / self.seconds


class Fifo:
    """A pipe with a name, through which a job tells when it has started."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Open for writing too: so it never looks closed between two jobs.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def read(self) -> int:
        """Return the CLOCK_MONOTONIC nanoseconds of the next start."""
        if not self._selector.select(TIMEOUT_SECONDS):
            raise QueueBenchError(f"no job has started in {TIMEOUT_SECONDS:.0f} s")
        return int(START.unpack(os.read(self._fd, START.size))[0])


class WorkerSide:
    """One running worker, and what of its jobs is in Redis."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", log_path: Path, server: "redis.Redis", taken_key: str
    ) -> None:
        self._process = process
        self._log_path = log_path
        self._server = server
        self._taken_key = taken_key
        """The hash of the jobs that are taken and not yet acknowledged."""

    def drain(self, queue: str, template: Template, jobs: int) -> Drained:
        """Let a full queue appear by one command, and wait until its last job is acknowledged."""
        staged = f"staged:{queue}"
        with self._server.pipeline() as pipeline:
            for _ in range(jobs):
                pipeline.lpush(staged, template.copy())
            pipeline.execute()
        before = self.cpu_seconds()
        started = time.monotonic()
        self._server.rename(staged, queue)
        ended = self._wait_until_empty(queue)
        main_seconds, pool_seconds = (b - a for a, b in zip(before, self.cpu_seconds(), strict=True))
        return Drained(
            jobs=jobs,
            seconds=ended - started,
            main_cpu_seconds=main_seconds,
            pool_cpu_seconds=pool_seconds,
        )

    def seconds_to_start(self, queue: str, template: Template, fifo: Fifo) -> float:
        """Return the time from giving one job to the start of its body, and wait until it is over."""
        text = template.copy()
        submitted_ns = time.monotonic_ns()
        self._server.lpush(queue, text)
        seconds = (fifo.read() - submitted_ns) / 1e9
        self._wait_until_empty(queue)
        return seconds

    def _wait_until_empty(self, queue: str) -> float:
        """Return when nothing was left; seen twice in a row, for kombu pops first and records later."""
        deadline, first_seen = time.monotonic() + TIMEOUT_SECONDS, None
        while time.monotonic() < deadline and self._process.poll() is None:
            now = time.monotonic()
            if self._outstanding(queue):
                first_seen = None
            elif first_seen is not None:
                return first_seen
            else:
                first_seen = now
            time.sleep(POLL_SECONDS)
        raise QueueBenchError(f"{queue} was not emptied: {self.last_words()}")

    def _outstanding(self, queue: str) -> int:
        with self._server.pipeline(transaction=True) as pipeline:
            pipeline.llen(queue)
            pipeline.hlen(self._taken_key)
            return sum(pipeline.execute())

    def cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU time so far of the main process, and of all processes below it."""
        main = psutil.Process(self._process.pid)
        return _cpu_seconds(main), sum(_cpu_seconds(child) for child in main.children(recursive=True))

    def last_words(self) -> str:
        """Return the end of its log."""
        return " / ".join(self._log_path.read_text("utf-8", errors="replace").splitlines()[-3:])


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
