"""Nothing that a job has started outlives it, however it was started and however the job ends."""

import os
import signal
from collections.abc import Callable
from typing import Any, get_args

import psutil
import pytest

from tests.integration.conftest import Cluster, Worker, wait_until
from tests.integration.hanging_kinds import Way

WAYS: tuple[str, ...] = get_args(Way)
MARKER = "tiepoint-test-sleeper"


def sleepers(cluster: Cluster) -> list[psutil.Process]:
    """Return the living processes that this test's jobs have started."""
    marker = marker_of(cluster)
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if is_alive and marker in (process.info["cmdline"] or []):
            found.append(process)
    return found


def marker_of(cluster: Cluster) -> str:
    """Return a word that no other test's jobs have in their command lines."""
    return f"{MARKER}-{os.getpid()}-{cluster.folder.name}"


def start_worker(cluster: Cluster, soft_seconds: float = 600, hard_seconds: float = 600) -> Worker:
    """Start a worker with one child."""
    return cluster.start_worker(
        cpus=1,
        kind_modules='["tests.integration.hanging_kinds"]',
        time_limits=f'{{"hanging": [{soft_seconds}, {hard_seconds}]}}',
    )


def start_sleepers(cluster: Cluster, *ways: str, hang: str = "sleep") -> str:
    """Send a job that starts something and hangs, wait until both are so; return the job's id."""
    told: dict[str, Any] = {"start": ways, "hang": hang, "marker": marker_of(cluster)}
    job = cluster.send("hanging", kwargs={"number": 1, "log": cluster.run_log, **told})
    expected = sum(8 if way == "grandchildren" else 1 for way in ways)
    wait_until(lambda: len(sleepers(cluster)) == expected, "all sleep")
    return job


def is_gone(cluster: Cluster) -> Callable[[], bool]:
    """Return a function that tells whether no sleeper lives."""
    return lambda: not sleepers(cluster)


def test_whatever_a_job_has_started_ends_with_it_at_its_limit(cluster: Cluster) -> None:
    """Before the job counts as dead: so long its memory is reserved."""
    start_worker(cluster, 6, 6)
    start_sleepers(cluster, *WAYS)
    wait_until(cluster.dead, "the job is dead")

    assert sleepers(cluster) == []
    assert cluster.dead()[0]["reason"] == "time_limit"


def test_nothing_lives_on_when_a_batch_is_through(cluster: Cluster) -> None:
    """The job is done once; what it has left would hold memory that is nobody's any more."""
    start_worker(cluster)
    told = {"start": ["daemon"], "marker": marker_of(cluster)}
    cluster.send("hanging", kwargs={"number": 1, "log": cluster.run_log, **told})
    wait_until(lambda: (cluster.folder / "runs").exists() and not cluster.inflight(), "the job is through")
    wait_until(is_gone(cluster), "nothing sleeps")
    wait_until(lambda: cluster.reserved_bytes("one") == 0, "nothing stays reserved")

    assert (cluster.folder / "runs").read_text().split() == ["1", "-1"]
    assert cluster.dead() == []


@pytest.mark.parametrize("signum", ["SIGTERM", "SIGINT"])
def test_a_revoked_job_ends_with_all_it_has_started(cluster: Cluster, signum: str) -> None:
    """Whatever signal it is to end by: one that is not heeded is followed by SIGKILL."""
    start_worker(cluster)
    job = start_sleepers(cluster, "own session")
    cluster.ask("revoke", task_id=job, terminate=True, signal=signum)
    wait_until(is_gone(cluster), "nothing sleeps")
    wait_until(lambda: not cluster.inflight(), "the job is settled")

    assert [dead["reason"] for dead in cluster.dead()] == ["cancelled"]


@pytest.mark.parametrize("who", ["child", "spawner", "main", "child and spawner"])
def test_what_a_job_has_started_ends_with_whoever_is_killed(cluster: Cluster, who: str) -> None:
    """A daemon has no tie to any of them but that its orphans fall to the next above."""
    worker = start_worker(cluster)
    start_sleepers(cluster, "daemon")
    [child] = worker.children()
    spawner = psutil.Process(child.ppid())
    victims = {
        "child": [child],
        "spawner": [spawner],
        "main": [psutil.Process(worker.process.pid)],
        "child and spawner": [child, spawner],
    }[who]
    for victim in victims:
        victim.kill()
    first = {process.pid for process in sleepers(cluster)}
    wait_until(
        lambda: not first & {process.pid for process in sleepers(cluster)}, "the first sleeper has ended"
    )


@pytest.mark.parametrize("signum", [signal.SIGQUIT, signal.SIGTERM])
def test_what_a_job_has_started_ends_with_the_node(cluster: Cluster, signum: int) -> None:
    """When the worker has ended, so has everything."""
    worker = start_worker(cluster, 5, 5)
    start_sleepers(cluster, "deaf")

    assert worker.stop(signum) == 0
    assert sleepers(cluster) == []
