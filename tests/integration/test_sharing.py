"""Nodes share what waits: the end of a stage is spread over them, a late one gets work at once."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cluster, Worker, wait_until

LATEST_START_SECONDS = 2.0
"""What a machine that is added is promised."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One start of a job."""

    number: int
    node: str
    batch: int
    threads: int
    started_ns: int


def read_runs(log: Path) -> list[Run]:
    """Return the starts that jobs have noted in a file, in this order."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [
        Run(number=int(n), node=node, batch=int(b), threads=int(t), started_ns=int(at))
        for n, node, b, t, at in (line.split() for line in lines)
    ]


@dataclass
class Nodes:
    """A cluster of nodes that run nothing but jobs that note where they ran."""

    cluster: Cluster

    def start(self, name: str, **settings: Any) -> Worker:
        """Start a node."""
        modules = '["tests.integration.sharing_kinds"]'
        return self.cluster.start_worker(name, kind_modules=modules, **settings)

    def start_two(self, cpus: int) -> None:
        """Start two nodes that know of each other."""
        for name in ("first", "second"):
            self.start(name, cpus=cpus)
        wait_until(lambda: knows_nodes(self.cluster, "first", 2), "the first knows the second")

    def send(self, kind: str, numbers: range, *, log: str = "runs", **payload: Any) -> None:
        """Send jobs."""
        for number in numbers:
            self.cluster.send(
                kind, kwargs={"number": number, "log": str(self.cluster.folder / log), **payload}
            )

    def runs(self, log: str = "runs") -> list[Run]:
        """Return what has started, in this order."""
        return read_runs(self.cluster.folder / log)

    def wait_for_starts(self, count: int, *, log: str = "runs") -> None:
        """Wait until this many jobs have started."""
        wait_until(lambda: len(self.runs(log)) == count, f"{count} jobs have started")

    def occupy(self, nodes: int) -> Path:
        """Give each node one job with all its threads, and return the file that ends these jobs."""
        gate = self.cluster.folder / "gate"
        for number in range(nodes):
            # One after the other: what waits alone gets all threads.
            self.send("share.threads", range(number, number + 1), log="gates", wait_for_file=str(gate))
            self.wait_for_starts(number + 1, log="gates")
        return gate


@pytest.fixture
def nodes(cluster: Cluster) -> Nodes:
    """Return a cluster without nodes."""
    return Nodes(cluster)


def test_the_last_items_of_a_stage_are_spread_over_the_nodes(nodes: Nodes) -> None:
    """Eight items would fit into one batch; two nodes of one thread take four at most at a time."""
    nodes.start_two(cpus=1)
    gate = nodes.occupy(2)
    nodes.send("share.batch8", range(8), wait_for_nodes=2)
    gate.touch()
    nodes.wait_for_starts(8)

    per_node = Counter(run.node for run in nodes.runs())
    assert set(per_node) == {"first", "second"}
    assert max(run.batch for run in nodes.runs()) == 4
    assert sorted(run.number for run in nodes.runs()) == list(range(8))


def test_a_node_that_is_alone_takes_all_in_one_batch(nodes: Nodes) -> None:
    """The pair of the test above."""
    nodes.start("alone", cpus=1)
    gate = nodes.occupy(1)
    nodes.send("share.batch8", range(8))
    gate.touch()
    nodes.wait_for_starts(8)

    assert {run.batch for run in nodes.runs()} == {8}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread cannot be shared")
def test_the_last_job_of_each_node_gets_all_its_threads(nodes: Nodes) -> None:
    """Two jobs on two nodes: neither keeps threads for the job that the other takes."""
    nodes.start_two(cpus=2)
    gate = nodes.occupy(2)
    nodes.send("share.threads", range(2), wait_for_nodes=2)
    gate.touch()
    nodes.wait_for_starts(2)

    assert {(run.node, run.threads) for run in nodes.runs()} == {("first", 2), ("second", 2)}


def test_a_late_node_gets_work_at_once_though_another_has_a_long_queue(nodes: Nodes) -> None:
    """From its lease to its first job; nothing that waits belongs to the node that came first."""
    nodes.start("early", cpus=1)
    nodes.send("share.batch8", range(400), sleep_seconds=0.2)
    wait_until(nodes.runs, "the early node is at work")
    nodes.start("late", cpus=1)
    has_lease_ns = time.monotonic_ns()
    late = wait_until(lambda: [run for run in nodes.runs() if run.node == "late"], "the late node is at work")
    waiting = nodes.cluster.server.llen("share.batch8")

    assert late[0].started_ns - has_lease_ns < LATEST_START_SECONDS * 1e9
    assert waiting > 0


def knows_nodes(cluster: Cluster, name: str, count: int) -> bool:
    """Tell whether a node reckons with this many."""
    with cluster.stock as client:
        replies: dict[str, Any] = dict(client.control.inspect(timeout=2.0).stats() or {})
    return any(
        host.startswith(f"{name}@") and stats["governor"]["live_nodes"] == count
        for host, stats in replies.items()
    )
