"""However a worker is told to end, it ends, and what it had begun is done or back in its list, uncounted."""

import json
import os
import signal
import time
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import Cluster, Worker, wait_until
from worker import keys


def start_job(cluster: Cluster, sleep_seconds: float = 600, number: int = 1) -> None:
    """Send a job and wait until it runs."""
    told = {"number": number, "log": cluster.run_log, "sleep_seconds": sleep_seconds}
    cluster.send("noop", kwargs=told)
    wait_until(lambda: any(ran == number for ran, _, _ in cluster.runs()), "the job runs")


def waiting(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the history of each message that waits."""
    messages: Any = cluster.server.lrange("noop", 0, -1)
    return [json.loads(message).get("tiepoint", {}) for message in messages]


def counted(history: dict[str, Any]) -> int:
    """Return all that is counted against a job."""
    return int(history.get("attempts", 0)) + int(history.get("lost", 0))


def wait_for_log(worker: Worker, text: str) -> None:
    """Wait until a worker has said something."""
    wait_until(lambda: text in worker.log, f"it says {text!r}")


def check_nothing_is_held(cluster: Cluster) -> None:
    """Compare what a worker that has ended leaves in Redis with nothing."""
    assert cluster.inflight() == 0
    assert cluster.server.zcard(keys.LEASES) == 0
    assert cluster.dead() == []


@pytest.mark.parametrize(
    ("first", "second", "exit_code"),
    [
        (signal.SIGTERM, signal.SIGQUIT, 0),
        (signal.SIGTERM, signal.SIGTERM, 0),
        (signal.SIGINT, signal.SIGINT, 1),
    ],
)
def test_who_asks_twice_does_not_wait_for_what_runs(
    cluster: Cluster, first: int, second: int, exit_code: int
) -> None:
    """The job goes back, and nothing is counted; the exit code is that of the first wish."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster)
    worker.process.send_signal(first)
    wait_for_log(worker, "Warm shutdown")
    time.sleep(1.5)  # Closer together they are one wish.

    assert worker.stop(second) == exit_code
    assert [counted(history) for history in waiting(cluster)] == [0]
    check_nothing_is_held(cluster)


def test_two_signals_at_once_are_one_wish(cluster: Cluster) -> None:
    """To the process and to its group: what runs is finished."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster, sleep_seconds=2)
    worker.process.send_signal(signal.SIGTERM)

    assert worker.stop(signal.SIGTERM) == 0
    assert (len(cluster.runs()), waiting(cluster)) == (1, [])
    check_nothing_is_held(cluster)


def test_what_ends_in_a_warm_shutdown_is_settled_while_another_job_runs(cluster: Cluster) -> None:
    """Others may wait for it, and the last job may take days."""
    worker = cluster.start_worker(cpus=2)
    start_job(cluster, number=1)
    start_job(cluster, number=2, sleep_seconds=2)
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: cluster.inflight() == 1, "the short job is settled")
    is_running = worker.process.poll() is None

    assert (is_running, waiting(cluster)) == (True, [])
    assert worker.stop(signal.SIGQUIT) == 0


@pytest.mark.parametrize("pause_seconds", [0.5, 1.5])
def test_a_signal_while_it_starts_ends_it_and_costs_no_job(cluster: Cluster, pause_seconds: float) -> None:
    """At whatever point of its start: the job waits on, or was claimed just before, and is finished."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 2})
    worker = cluster.start_worker(cpus=1, until_it_is_ready=False)
    time.sleep(pause_seconds)

    assert worker.stop(signal.SIGTERM) in {0, -signal.SIGTERM}
    assert [counted(history) for history in waiting(cluster)] == [0] * (1 - len(cluster.runs()))
    check_nothing_is_held(cluster)


@pytest.fixture
def server_pid(cluster: Cluster) -> int:
    """Return the server's process id."""
    told: Any = cluster.server.info("server")
    return int(told["process_id"])


def test_it_ends_though_redis_is_gone(cluster: Cluster, server_pid: int) -> None:
    """What it could not settle runs again; it does not wait for a server that does not come back."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster, sleep_seconds=3)
    os.kill(server_pid, signal.SIGKILL)
    wait_for_log(worker, "Connection to broker lost")

    assert worker.stop(signal.SIGTERM) == 0


def test_it_ends_though_redis_does_not_answer(cluster: Cluster, server_pid: int) -> None:
    """A frozen server accepts what is sent and says nothing."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster, sleep_seconds=3)
    os.kill(server_pid, signal.SIGSTOP)
    try:
        assert worker.stop(signal.SIGTERM) == 0
    finally:
        os.kill(server_pid, signal.SIGCONT)


def test_control_shutdown_is_a_warm_one(cluster: Cluster) -> None:
    """Flower's button."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster, sleep_seconds=3)
    with cluster.stock as client:
        wait_until(partial(client.control.ping, timeout=1.0, limit=1), "the worker listens")
        client.control.shutdown()

    assert worker.process.wait(60) == 0
    assert len(cluster.runs()) == 1
    check_nothing_is_held(cluster)


def test_a_hangup_is_a_wish_to_end(cluster: Cluster) -> None:
    """A closed terminal, or whoever means to have a configuration read anew: what runs is finished."""
    worker = cluster.start_worker(cpus=1)
    start_job(cluster, sleep_seconds=2)

    assert worker.stop(signal.SIGHUP) == 0
    assert len(cluster.runs()) == 1
    check_nothing_is_held(cluster)
