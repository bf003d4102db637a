"""Runs one worker of the small-memory bench in a memory cgroup, gives it the jobs, waits until they are over.

Both sorts of worker get the same messages from the same stock client, on a
server of their own outside the cgroup. Does not cover what is compared
(:mod:`tests.bench.small_memory`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import redis
from celery import Celery
from celery.states import FAILURE

from tasks.feature_sets import features_key
from tasks.features import FeaturePayload
from tasks.store import Store
from tests.bench.small_memory_stock import QUEUE
from tests.memory_cgroup import MemoryCgroup, memory_cgroup
from worker import keys
from worker.connections import plain_client
from worker.embedded import embedded_server
from worker.settings import PREFIX

_REPOSITORY = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
CONCURRENCY = 2


class SmallMemoryError(Exception):
    """A worker did not start; the text holds its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Photos whose features are wanted, in a store that holds none of these yet."""

    store: Store
    payloads: tuple[FeaturePayload, ...]

    def finished(self) -> int:
        """Return how many feature sets are published."""
        return sum(
            self.store.has(features_key(each.image, each.parameters("sift"))) for each in self.payloads
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What has become of the jobs, and what the kernel did to the worker."""

    kernel_kills: int
    """Processes of the cgroup, by its own counter."""
    finished: int
    failed: int
    """Given up; what is neither finished nor failed was still on its way at the end of the time."""
    jobs: int
    seconds: float
    """From giving the jobs to an idle worker until the last was over."""
    peak_bytes: int | None
    """Of the whole cgroup, page cache included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How one sort of worker is started, and how it is seen what it has given up."""

    name: str
    command: Sequence[str]
    environment: Callable[[str, Path, Path], Mapping[str, str]]
    """From the broker's URL, the store and a folder of its own."""
    is_ready: Callable[["redis.Redis"], object]
    given_up: Callable[["redis.Redis"], int]
    """How many jobs."""


def _stock_failures(server: "redis.Redis") -> int:
    """Count the results that say so, as Celery's result backend keeps them."""
    found = list(server.scan_iter("celery-task-meta-*"))
    return sum(json.loads(text)["status"] == FAILURE for text in server.mget(found) if text) if found else 0


_CELERY = [sys.executable, "-P", "-m", "celery"]
_QUIET = ["worker", "--without-mingle", "--without-gossip", "--loglevel", "WARNING"]
STOCK = Side(
    name="stock",
    command=[
        *_CELERY,
        *("-A", "tests.bench.small_memory_stock"),
        *_QUIET,
        *("--pool", "prefork", "--concurrency", str(CONCURRENCY)),
    ],
    environment=lambda broker_url, store, _: {"BENCH_BROKER_URL": broker_url, "BENCH_STORE": str(store)},
    # It binds its control mailbox once it consumes.
    is_ready=lambda server: server.exists("_kombu.binding.celery.pidbox"),
    given_up=_stock_failures,
)
TIEPOINT = Side(
    name="tiepoint",
    command=[*_CELERY, "-A", "worker.app", *_QUIET],
    environment=lambda broker_url, store, folder: {
        "TIEPOINT_BROKER_URL": broker_url,
        "TIEPOINT_STORE": str(store),
        "TIEPOINT_PROFILE": "dedicated",
        "TIEPOINT_CPUS": str(CONCURRENCY),
        # A worker of this machine's owner is none of the bench's business.
        "TIEPOINT_LOCK_FOLDER": str(folder),
    },
    is_ready=lambda server: server.zcard(keys.LEASES),
    given_up=lambda server: int(server.llen(keys.DEAD)),
)


def run_side(side: Side, jobs: Jobs, folder: Path, *, limit_bytes: int, timeout_seconds: float) -> Result:
    """Run a worker in a cgroup of its own until all jobs are over, or the time is.

    Raises:
        SmallMemoryError: the worker did not start.
        NoMemoryCgroupError: no cgroup can be made here.
    """
    with ExitStack() as stack:
        broker_url = stack.enter_context(embedded_server()).broker_url
        server = stack.enter_context(
            closing(plain_client(broker_url.replace("redis+socket://", "unix://", 1)))
        )
        group = stack.enter_context(memory_cgroup(limit_bytes))
        environment = side.environment(broker_url, jobs.store.root, folder)
        worker = stack.enter_context(_running(side, group, environment, folder))
        _wait_until_ready(side, worker, server, folder)
        client = stack.enter_context(Celery(broker=broker_url, set_as_current=False))
        started = time.monotonic()
        for payload in jobs.payloads:
            client.send_task(QUEUE, kwargs=payload.model_dump(exclude_none=True), queue=QUEUE)
        failed = _wait_until_over(
            jobs, worker, partial(side.given_up, server), deadline=started + timeout_seconds
        )
        return Result(
            kernel_kills=group.kernel_kills(),
            finished=jobs.finished(),
            failed=failed,
            jobs=len(jobs.payloads),
            seconds=round(time.monotonic() - started, 1),
            peak_bytes=group.peak_bytes(),
        )


@contextmanager
def _running(
    side: Side, group: MemoryCgroup, environment: Mapping[str, str], folder: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    folder.mkdir()
    with _log_path(folder).open("wb") as log:
        worker = group.start(
            side.command,
            env={**_inherited(), "PYTHONPATH": str(_REPOSITORY), **environment},
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        yield worker
    finally:
        worker.terminate()
        try:
            worker.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
        worker.wait()


def _wait_until_ready(
    side: Side, worker: "subprocess.Popen[bytes]", server: "redis.Redis", folder: Path
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not side.is_ready(server):
        if worker.poll() is not None or time.monotonic() > deadline:
            last_words = _log_path(folder).read_text("utf-8", errors="replace")[-500:]
            raise SmallMemoryError(f"the worker of {side.name} did not start: {last_words}")
        time.sleep(_POLL_SECONDS)


def _wait_until_over(
    jobs: Jobs, worker: "subprocess.Popen[bytes]", given_up: Callable[[], int], *, deadline: float
) -> int:
    """Return how many jobs were given up; a worker that has ended can do no more."""
    while True:
        failed = given_up()
        is_over = jobs.finished() + failed >= len(jobs.payloads)
        if is_over or worker.poll() is not None or time.monotonic() > deadline:
            return failed
        time.sleep(_POLL_SECONDS)


def _inherited() -> dict[str, str]:
    """Return our environment without any setting: ours must see the limit, not be told of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _log_path(folder: Path) -> Path:
    return folder / "log"
