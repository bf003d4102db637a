"""Two real workers under one limit: the memory that one has promised is not free for the other."""

import os
import signal
import subprocess
import sys

import pytest

from tests.integration.conftest import Cluster, Worker, wait_until
from tests.memory_cgroup import MemoryCgroup, memory_cgroup_or_skip
from worker import keys

MIB = 2**20
NAMES = ("one", "two")
HOG = "import sys; taken = bytearray(b'x') * int(sys.argv[1]); print(flush=True); sys.stdin.read()"


def start_inside(cluster: Cluster, group: MemoryCgroup, name: str) -> Worker:
    """Start a worker of 1400 MiB and one child in the cgroup; all share a lock folder."""
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    return cluster.start_worker(
        name,
        command=group.joined_by(command),
        cpus=1,
        memory_bytes=1400 * MIB,
        lock_folder=cluster.folder / "machine",
    )


def hog(group: MemoryCgroup, amount_bytes: int) -> "subprocess.Popen[bytes]":
    """Start a foreign program that holds so much of the limit."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process: subprocess.Popen[bytes] = group.start([sys.executable, "-c", HOG, str(amount_bytes)], **pipes)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def send_job(cluster: Cluster, number: int) -> None:
    """Send a job that is charged 600 MiB, takes its time and holds nothing."""
    job = {"number": number, "log": cluster.run_log, "needs_bytes": 600 * MIB, "sleep_seconds": 20}
    cluster.send("noop", kwargs=job)


def takers(cluster: Cluster) -> list[str]:
    """Return the workers that have reserved for such a job, as they tell."""
    return [name for name in NAMES if cluster.reserved_bytes(name) >= 600 * MIB]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="each worker needs a CPU of its own")
def test_a_promise_binds_the_neighbour_until_its_worker_is_killed(cluster: Cluster) -> None:
    """Of 3 GiB a stranger holds half: one job of 600 MiB fits beside the reserve, two do not."""
    with memory_cgroup_or_skip(3072 * MIB) as group:
        workers = {name: start_inside(cluster, group, name) for name in NAMES}
        free_bytes = group.limit_bytes - group.usage_bytes()
        with hog(group, free_bytes - 1400 * MIB):
            send_job(cluster, 1)
            wait_until(lambda: takers(cluster), "one worker has the job")
            (taker,) = takers(cluster)
            send_job(cluster, 2)
            (other,) = set(NAMES) - {taker}
            wait_until(
                lambda: b"INSUFFICIENT_MEMORY" in (cluster.server.hget(keys.node(other), "waits_for") or b""),
                "the other waits for memory",
            )
            held_back = cluster.reserved_bytes(other)
            workers[taker].stop(signal.SIGKILL)
            wait_until(lambda: takers(cluster) and other in takers(cluster), "it has a job of its own")

    assert held_back < 600 * MIB
