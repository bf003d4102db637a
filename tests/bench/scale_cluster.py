"""Runs a simulated cluster: the processes, and what their nodes tell at the end.

The nodes themselves are :mod:`tests.bench.scale_nodes`'s; what is measured on
them is :mod:`tests.bench.scale_load`'s.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis

from tests.bench.scale_nodes import DEFAULT_LEASE_SECONDS, Order
from worker import keys

_REPOSITORY = Path(__file__).resolve().parents[2]
_SIZES = (2, 4, 8, 2)
"""CPU threads of the nodes, in turn."""
_DEADLINE_SECONDS = 120.0


class ScaleError(Exception):
    """A simulated node has ended, or the cluster hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server, and the folder of a store."""

    broker_url: str
    server: "redis.Redis"
    folder: Path

    @property
    def redis_url(self) -> str:
        """Return the broker's URL in redis-py's spelling."""
        return self.broker_url.replace("redis+socket://", "unix://", 1)


class SimulatedCluster:
    """Running processes, and the nodes in them; what they have seen is told at the end."""

    def __init__(self, place: Place, processes: Sequence["subprocess.Popen[str]"], threads: int) -> None:
        self.place = place
        self.threads = threads
        """Of all nodes."""
        self.told: list[dict[str, Any]] = []
        """One per node, once it has ended."""
        self._processes = processes

    def check(self) -> None:
        """Raise where a process has ended before its time."""
        if any(process.poll() is not None for process in self._processes):
            raise ScaleError("a process of simulated nodes has ended; its error is above")

    def end(self) -> None:
        """Let all nodes leave."""
        for process in self._processes:
            cast("Any", process.stdin).close()
        for process in self._processes:
            self.told += json.loads(cast("Any", process.stdout).read())
            process.wait(_DEADLINE_SECONDS)

    def counted(self, name: str) -> int:
        """Return the sum of a counter over all nodes."""
        return sum(node["counters"][name] for node in self.told)

    def spans(self) -> list[dict[str, Any]]:
        """Return every batch of every node."""
        return [span | {"node": node["name"]} for node in self.told for span in node["spans"]]


@contextmanager
def simulated_cluster(
    place: Place,
    nodes: int,
    processes: int,
    sizes: Sequence[int] = _SIZES,
    lease_seconds: float = DEFAULT_LEASE_SECONDS,
) -> Iterator[SimulatedCluster]:
    """Run so many nodes in so many processes; all have their lease when the block begins."""
    threads = [sizes[number % len(sizes)] for number in range(nodes)]
    share = -(-nodes // processes)
    with ExitStack() as stack:
        running = []
        for first in range(0, nodes, share):
            order = Order(
                broker_url=place.broker_url,
                folder=str(place.folder),
                first=first,
                threads=tuple(threads[first : first + share]),
                lease_seconds=lease_seconds,
            )
            running.append(stack.enter_context(_process(order)))
        cluster = SimulatedCluster(place, running, sum(threads))
        _wait(cluster, lambda: place.server.zcard(keys.LEASES) == nodes)
        yield cluster


@contextmanager
def _process(order: Order) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.scale_nodes", order.to_text()],
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            cast("Any", pipe).close()


def _wait(cluster: SimulatedCluster, is_so: Any) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not is_so():
        cluster.check()
        if time.monotonic() > deadline:
            raise ScaleError("the simulated cluster hangs")
        time.sleep(0.02)
