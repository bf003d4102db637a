"""A job that hangs ends at its limit, once; the others of its batch do not notice."""

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Cluster, Worker, wait_until


def limits(soft_seconds: float, hard_seconds: float) -> str:
    """Return the setting that gives both kinds these limits."""
    both = f"[{soft_seconds}, {hard_seconds}]"
    return f'{{"hanging": {both}, "hanging.at_once": {both}}}'


def start_worker(cluster: Cluster, time_limits: str, **settings: Any) -> Worker:
    """Start a worker with one child."""
    return cluster.start_worker(
        cpus=1, kind_modules='["tests.integration.hanging_kinds"]', time_limits=time_limits, **settings
    )


def send(cluster: Cluster, number: int, *, kind: str = "hanging", **told: Any) -> str:
    """Send one job that is not revoked; options of Celery's own are among them."""
    options = {name: told.pop(name) for name in ("time_limit", "soft_time_limit") if name in told}
    return cluster.send(kind, kwargs={"number": number, "log": cluster.run_log, **told}, **options)


def starts(cluster: Cluster) -> list[int]:
    """Return the numbers of the jobs that were started (and negated: ended), in order."""
    log = cluster.folder / "runs"
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def settled(cluster: Cluster) -> Callable[[], None]:
    """Return a function that waits until nothing is queued or claimed."""

    def wait() -> None:
        wait_until(
            lambda: not cluster.inflight() and not cluster.server.llen("hanging"), "everything is settled"
        )

    return wait


def test_a_job_that_hangs_is_dead_at_its_hard_limit_and_its_batch_goes_on(
    cluster: Cluster, settled: Callable[[], None]
) -> None:
    """In Python or in C it is tried once; of the others none is repeated."""
    start_worker(cluster, limits(1, 1))
    for number, hang in enumerate(["", "sleep", "", "in C", ""], start=1):
        send(cluster, number, hang=hang)
    wait_until(lambda: len(cluster.dead()) == 2, "the hanging jobs are dead")
    settled()

    assert {(dead["reason"], dead["attempts"]) for dead in cluster.dead()} == {("time_limit", 1)}
    assert all("its hard time limit of 1 s" in dead["cause"] for dead in cluster.dead())
    assert sorted(starts(cluster)) == [-5, -3, -1, 1, 2, 3, 4, 5]


def test_the_soft_limit_is_an_exception_that_a_job_may_handle(
    cluster: Cluster, settled: Callable[[], None]
) -> None:
    """One handles it and is done; the other does not, and fails."""
    start_worker(cluster, limits(1, 60))
    send(cluster, 1, hang="handled")
    send(cluster, 2, hang="sleep")
    wait_until(cluster.dead, "the other has failed")
    settled()

    [dead] = cluster.dead()
    assert (dead["reason"], starts(cluster)) == ("time_limit", [1, -1, 2])
    assert "its soft time limit of 1 s" in dead["cause"]


def test_where_several_are_at_work_each_is_tried_alone(cluster: Cluster) -> None:
    """Which of them hangs is seen then."""
    send(cluster, 1, kind="hanging.at_once")
    send(cluster, 2, kind="hanging.at_once", hang="sleep")
    start_worker(cluster, limits(1, 1))
    wait_until(cluster.dead, "the hanging job is dead")
    wait_until(lambda: not cluster.inflight(), "everything is settled")

    [dead] = cluster.dead()
    assert (dead["reason"], dead["attempts"]) == ("time_limit", 2)
    assert sorted(starts(cluster)) == [-1, -1, 1, 1, 2, 2]


def test_a_sender_may_say_how_long_its_job_may_take(cluster: Cluster, settled: Callable[[], None]) -> None:
    """As with a stock worker: `apply_async(time_limit=...)`."""
    start_worker(cluster, "{}")
    send(cluster, 1, hang="sleep", time_limit=1)
    wait_until(cluster.dead, "it is dead")
    settled()

    [dead] = cluster.dead()
    assert "its hard time limit of 1 s" in dead["cause"]


def test_celery_control_changes_the_limits_of_a_kind(cluster: Cluster, settled: Callable[[], None]) -> None:
    """From the next batch on."""
    start_worker(cluster, "{}")
    answer = cluster.ask("time_limit", task_name="hanging", soft=60, hard=1)
    send(cluster, 1, hang="sleep")
    wait_until(cluster.dead, "it is dead")
    settled()

    assert answer == {"ok": "time limits set successfully"}
    assert starts(cluster) == [1]


def test_a_frozen_child_ends_at_its_limit(cluster: Cluster, settled: Callable[[], None]) -> None:
    """It cannot hear anything; the kernel ends it all the same."""
    worker = start_worker(cluster, limits(5, 5))
    send(cluster, 1, hang="sleep")
    wait_until(lambda: starts(cluster), "the job runs")
    worker.children()[0].suspend()
    wait_until(cluster.dead, "it is dead")
    settled()

    assert cluster.dead()[0]["reason"] == "time_limit"


def test_a_worker_that_was_frozen_does_not_count_that_time(cluster: Cluster) -> None:
    """All its jobs would be over their limits at once."""
    worker = start_worker(cluster, limits(6, 6), lease_seconds=60)
    send(cluster, 1, hang="handled")
    wait_until(lambda: starts(cluster), "the job runs")
    everything = [worker.process.pid, *(child.pid for child in worker.children())]
    signal_all(everything, signal.SIGSTOP)
    time.sleep(7)  # Longer than the limit.
    signal_all(everything, signal.SIGCONT)
    time.sleep(1.5)  # A tick comes, and more.

    assert cluster.dead() == []
    assert starts(cluster) == [1]


def signal_all(pids: list[int], signum: int) -> None:
    """Send a signal to all of these processes."""
    subprocess.run(["kill", f"-{int(signum)}", *map(str, pids)], check=True)  # noqa: S607 - procps


def test_a_job_that_hangs_ends_at_its_limit_in_a_warm_shutdown_too(cluster: Cluster) -> None:
    """The worker waits for what runs, but not for ever; then it ends with nothing held."""
    worker = start_worker(cluster, limits(3, 3))
    send(cluster, 1, hang="sleep")
    wait_until(lambda: starts(cluster), "the job runs")

    assert worker.stop(signal.SIGTERM) == 0
    assert [dead["reason"] for dead in cluster.dead()] == ["time_limit"]
    assert cluster.inflight() == 0
