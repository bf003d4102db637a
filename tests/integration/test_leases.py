"""Real workers that are frozen, held up or killed: what they held is done once, and they go on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tasks.store import Store
from tests.integration.conftest import DEADLINE_SECONDS, Cluster, Worker, wait_until
from tests.integration.publishing_kinds import KIND_NAME, content_of, key_of
from tests.integration.scripted_node import leased_node
from worker import keys

BEYOND_THE_TEST_SECONDS = 600
"""A lease that no test sees the end of."""


def times_run(cluster: Cluster, number: int) -> int:
    """Return how often a job has started."""
    return [ran for ran, _, _ in cluster.runs()].count(number)


def send_item(cluster: Cluster, item: str, **payload: Any) -> None:
    """Send a job of project `p`, and put it into its window, as planning does."""
    project = keys.project("p")
    cluster.server.sadd(keys.stage_todo("p", "match"), item)
    cluster.server.hincrby(project, "outstanding", 1)
    headers = {"project": "p", "stage": "match", "item": item}
    cluster.send("noop", kwargs={"log": cluster.run_log, **payload}, headers=headers)


def refused_settlements(cluster: Cluster, worker: Worker) -> int:
    """Return how many settlements of a worker came too late; -1 where it does not answer."""
    host = f"{worker.name}@{socket.gethostname()}"
    with cluster.stock as client:
        replies: dict[str, Any] = dict(client.control.inspect([host], timeout=2.0, limit=1).stats() or {})
    return int(replies[host]["governor"]["counters"]["refused_settlements"]) if replies else -1


def processes_of(worker: Worker) -> list[psutil.Process]:
    """Return a worker's main process, spawner and children."""
    main = psutil.Process(worker.process.pid)
    return [main, *main.children(recursive=True)]


def leases(cluster: Cluster) -> list[str]:
    """Return the incarnations that have a lease."""
    found: list[Any] = cluster.server.zrange(keys.LEASES, 0, -1)
    return [lease.decode() for lease in found]


def holder_of(cluster: Cluster, name: str) -> str | None:
    """Return the incarnation of a node that holds a message."""
    for key in cluster.server.scan_iter(f"{keys.INFLIGHT_PREFIX}{name}|*"):
        return str(key.decode().removeprefix(keys.INFLIGHT_PREFIX))
    return None


def test_a_killed_worker_that_starts_again_takes_its_jobs_at_once(cluster: Cluster) -> None:
    """Its lease has minutes to go; the kernel has dropped its lock."""
    settings: dict[str, Any] = {
        "lock_folder": cluster.folder / "machine",
        "lease_seconds": BEYOND_THE_TEST_SECONDS,
    }
    first = cluster.start_worker("one", **settings)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "the job runs")
    dead = holder_of(cluster, "one")
    first.stop(signal.SIGKILL)
    cluster.start_worker("one", **settings)
    wait_until(lambda: times_run(cluster, 1) == 2, "the job runs again")

    (lease,) = leases(cluster)
    (held,) = cluster.server.hvals(keys.inflight(lease))
    assert lease != dead
    assert json.loads(held)["tiepoint"] == {"attempts": 0, "lost": 1, "estimate": {}, "lost_on": "one"}


@pytest.mark.parametrize("frozen", ["all of its processes", "its main process"])
def test_a_node_that_was_frozen_beyond_its_lease_is_refused_and_goes_on(
    cluster: Cluster, frozen: str
) -> None:
    """Another has done its job meanwhile; it is counted once, whether or not the frozen one computes on."""
    woken = cluster.start_worker("woken", lease_seconds=2, cpus=1)
    send_item(cluster, "a", number=1, sleep_seconds=2)
    wait_until(cluster.runs, "the job runs")
    old_lease = holder_of(cluster, "woken")
    stopped = processes_of(woken) if frozen == "all of its processes" else processes_of(woken)[:1]
    for process in stopped:
        process.suspend()
    other = cluster.start_worker("other", lease_seconds=2, cpus=1)
    done = keys.project("p"), "match:done"
    wait_until(lambda: cluster.server.hget(*done) == b"1", "the other has done it")
    for process in reversed(stopped):
        process.resume()
    wait_until(lambda: refused_settlements(cluster, woken) == 1, "the late result is refused")
    other.stop()
    send_item(cluster, "b", number=2)
    wait_until(lambda: cluster.server.hget(*done) == b"2", "the woken node goes on")

    assert [times_run(cluster, number) for number in (1, 2)] == [2, 1]
    assert int(cluster.server.hget(keys.project("p"), "outstanding") or 0) == 0
    assert leases(cluster) == [old_lease]
    assert "lease_had_ended" in woken.log
    assert cluster.dead() == []


def files_of(folder: Path) -> dict[Path, int]:
    """Return the inode of each file below a folder."""
    return {path: path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def test_what_the_children_of_a_frozen_node_publish_is_in_the_store_once(cluster: Cluster) -> None:
    """They compute on while another node does their job as well: the first file stays, and is whole."""
    settings: dict[str, Any] = {"kind_modules": '["tests.integration.publishing_kinds"]', "cpus": 1}
    store = Store(cluster.folder / "store")
    store.create()
    frozen = cluster.start_worker("frozen", **settings)
    started = cluster.folder / "started"
    cluster.send(KIND_NAME, kwargs={"number": 1, "sleep_seconds": 2, "started_file": str(started)})
    wait_until(started.exists, "the job runs")
    main = psutil.Process(frozen.process.pid)
    main.suspend()
    wait_until(lambda: store.has(key_of(1)), "its child has published")
    first = files_of(store.root)
    cluster.start_worker("other", **settings)
    wait_until(lambda: cluster.server.hget(keys.TOTALS, "done") == b"1", "the other has done it")
    main.resume()
    wait_until(lambda: refused_settlements(cluster, frozen) == 1, "the late result is refused")

    assert files_of(store.root) == first
    assert np.array_equal(store.read(key_of(1)).arrays["content"], content_of(1))
    assert cluster.server.hget(keys.TOTALS, "done") == b"1"


@contextmanager
def all_cores_taken() -> Iterator[None]:
    """Run two programs per core that compute, for the time of the block."""
    spinning = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(spinning) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_node_that_is_held_up_keeps_its_lease(cluster: Cluster) -> None:
    """Its main thread is busy for longer than that, a child hangs, all cores are taken."""
    worker = cluster.start_worker(
        lease_seconds=5, cpus=2, kind_modules='["tests.integration.blocking_kinds"]'
    )
    watcher, given_back = leased_node(cluster.server, "watcher"), 0
    for number, seconds in ((1, 600), (2, 0)):
        if number == 2:
            wait_until(cluster.runs, "the first job runs")
            psutil.Process(cluster.runs()[0][2]).suspend()
        kwargs = {"number": number, "log": cluster.run_log, "sleep_seconds": seconds}
        cluster.send("noop", kwargs=kwargs, headers={"hold_up_seconds": 6 * (number - 1)})
    with all_cores_taken():
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not times_run(cluster, 2) and time.monotonic() < deadline:
            given_back += watcher.renew()[1]
            time.sleep(0.02)

    assert [times_run(cluster, number) for number in (1, 2)] == [1, 1]
    assert given_back == 0
    assert "lease_had_ended" not in worker.log
