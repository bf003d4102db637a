"""A job that takes more memory than it said costs its own process, never the node; and it gets more.

In a real memory cgroup, so that the kernel's OOM killer is the one that kills.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.conftest import Cluster, Worker, wait_until
from tests.integration.hungry_kinds import ESTIMATE, MIB
from tests.memory_cgroup import MemoryCgroup, memory_cgroup_or_skip
from worker import keys

LIMIT_BYTES = 1536 * MIB
MORE_THAN_THERE_IS = 4096 * MIB
BALLAST = "import sys; held = b'\\1' * int(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def group() -> Iterator[MemoryCgroup]:
    """Return a memory cgroup for a worker and what else lives beside it."""
    with memory_cgroup_or_skip(LIMIT_BYTES) as group:
        yield group


def start_worker(
    cluster: Cluster, group: MemoryCgroup | None, *, name: str = "one", **settings: Any
) -> Worker:
    """Start a worker with the hungry kind and one child, within the cgroup if there is one."""
    start = subprocess.Popen if group is None else group.start
    kinds = '["tests.integration.hungry_kinds"]'
    return cluster.start_worker(name, start=start, kind_modules=kinds, cpus=1, **settings)


def send(cluster: Cluster, number: int, **kwargs: Any) -> str:
    """Send one hungry job."""
    return cluster.send("hungry", kwargs={"number": number, "log": cluster.run_log, **kwargs})


@contextmanager
def ballast(group: MemoryCgroup, held_bytes: int) -> Iterator[None]:
    """Let a program that is not ours hold memory of the cgroup meanwhile."""
    command = [sys.executable, "-c", BALLAST, str(held_bytes)]
    with group.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        told = process.stdout.readline() if process.stdout else b""
        assert told == b"held\n"
        yield


def test_the_killer_takes_the_job_and_the_item_fails_with_the_proven_cause(
    cluster: Cluster, group: MemoryCgroup
) -> None:
    """A node alone: the job had more than this node can ever offer, so one kill is enough to know."""
    for number in range(3):
        send(cluster, number, take_bytes=MORE_THAN_THERE_IS if number == 1 else 0)
    worker = start_worker(cluster, group, single_node="true")
    wait_until(lambda: cluster.dead() and not cluster.inflight(), "everything is settled")

    [dead] = cluster.dead()
    assert worker.process.poll() is None
    assert group.kernel_kills() == 1
    assert sorted(number for number, _, _ in cluster.runs()) == [0, 1, 2]
    assert dead["reason"] == "needs_bigger_node"
    assert "the kernel killed it for want of memory (proven) on node one, with " in dead["cause"]
    assert (dead["attempts"], dead["ending"], dead["node"]) == (1, "out_of_memory", "one")
    assert dead["peak_bytes"] == dead["last_end"]["peak_bytes"] > 512 * MIB
    wait_until(lambda: cluster.reserved_bytes("one") == 0, "nothing stays reserved")


def test_a_killed_item_runs_alone_with_more_and_succeeds_where_there_is_room(
    cluster: Cluster, group: MemoryCgroup
) -> None:
    """Another program had the memory; what the job was seen to need is reserved for its next run."""
    with ballast(group, 700 * MIB):
        worker = start_worker(cluster, group)
        send(cluster, 1, take_bytes=800 * MIB)
        wait_until(group.kernel_kills, "the kernel kills the job")
    wait_until(lambda: len(cluster.runs()) > 1 and not cluster.inflight(), "it has run again")

    (_, _, first_bytes), *_, (_, batch, last_bytes) = cluster.runs()
    assert first_bytes == ESTIMATE.memory_bytes(1)
    assert (batch, last_bytes > 300 * MIB) == (1, True)
    assert cluster.dead() == []
    assert "killed by the kernel: out of memory (proven)" in worker.log


def test_a_job_that_had_more_than_its_node_can_offer_runs_on_a_bigger_one(
    cluster: Cluster, group: MemoryCgroup
) -> None:
    """The larger estimate puts it among the large ones, which wait for a node with room."""
    small = start_worker(cluster, group, name="small")
    send(cluster, 1, take_bytes=1500 * MIB)
    wait_until(lambda: cluster.server.zcard(keys.large("hungry")), "it is set aside")
    start_worker(cluster, None, name="big")
    wait_until(lambda: len(cluster.runs()) == 2 and not cluster.inflight(), "it has run again")

    assert small.process.poll() is None
    assert group.kernel_kills() == 1
    assert cluster.dead() == []


def test_memory_that_is_refused_counts_like_memory_that_is_taken_away(cluster: Cluster) -> None:
    """The item runs again with 1.5 times as much each time; the third attempt is the last."""
    start_worker(cluster, None)
    send(cluster, 1, refused=True, take_bytes=19 * MIB)
    wait_until(lambda: cluster.dead() and not cluster.inflight(), "it is settled")

    [dead] = cluster.dead()
    assert [reserved for _, _, reserved in cluster.runs()] == [8 * MIB, 12 * MIB, 18 * MIB]
    assert (dead["reason"], dead["last_end"]["ending"]) == ("worker_lost", "allocation_failed")
    assert (dead["ending"], dead["node"]) == ("out_of_memory", "one")
    assert dead["last_end"]["node"] == "one"


def test_what_a_job_has_started_is_before_the_node_in_the_killers_eyes_and_ends_with_the_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The node never goes before its jobs, and no memory stays behind when a reservation is released."""
    worker = start_worker(cluster, None)
    told = tmp_path / "sleeper"
    send(cluster, 1, start_sleeper=str(told))
    wait_until(lambda: told.exists() and told.read_text(), "the sleeper is there")
    [child] = worker.children()
    sleeper = psutil.Process(int(told.read_text()))
    ranks = [oom_score_adj(pid) for pid in (worker.process.pid, child.ppid(), child.pid, sleeper.pid)]
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(sleeper), "the sleeper has ended")

    assert ranks[0] == ranks[1] < ranks[2] == ranks[3]


def has_ended(process: psutil.Process) -> bool:
    """Tell whether a process runs no more, also where nobody reaps it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def oom_score_adj(pid: int) -> int:
    """Return how far the kernel prefers a process to others."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
