"""Several machines at one Redis, over a network: who gets work, and what follows when a cable is pulled.

Each node is a real worker in a network namespace of its own (:mod:`tests.network_namespaces`).
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from tests.integration.conftest import Cluster, Worker, wait_until
from tests.integration.test_sharing import LATEST_START_SECONDS, Run, read_runs
from tests.network_namespaces import Host, Network, network_or_skip
from worker import keys
from worker.connections import plain_client
from worker.embedded import server_program

LEASE_SECONDS = 2.0
PORT = 6379
PASSWORD = "many-nodes"  # noqa: S105 - of a server in a namespace that nobody else can reach


@dataclass
class Machines:
    """A cluster whose nodes reach the queue over a network only."""

    cluster: Cluster
    network: Network
    hosts: dict[str, Host] = field(default_factory=dict)

    def start(self, name: str, *, cpus: int = 1) -> Worker:
        """Add a machine and start its node."""
        self.hosts[name] = host = self.network.add_host(name)
        return self.cluster.start_worker(
            name,
            start=host.start,
            broker_url=f"redis://:{PASSWORD}@{self.network.hub.address}:{PORT}/0",
            kind_modules='["tests.integration.sharing_kinds"]',
            lease_seconds=LEASE_SECONDS,
            cpus=cpus,
        )

    def send(self, kind: str, numbers: range, **payload: object) -> None:
        """Send jobs that note where they run."""
        log = str(self.cluster.folder / "runs")
        for number in numbers:
            self.cluster.send(kind, kwargs={"number": number, "log": log, **payload})

    def runs(self) -> list[Run]:
        """Return what has started, in this order."""
        return read_runs(self.cluster.folder / "runs")

    def wait_for_starts(self, count: int) -> None:
        """Wait until this many jobs have started."""
        wait_until(lambda: len(self.runs()) >= count, f"{count} jobs have started")

    def wait_until_empty(self) -> None:
        """Wait until nothing waits and nothing runs."""
        server, queue = self.cluster.server, "share.batch8"
        wait_until(lambda: server.llen(queue) == 0 and self.cluster.inflight() == 0, "all is done")

    def leases(self) -> set[str]:
        """Return the names of the nodes that hold a live lease."""
        seconds, microseconds = self.cluster.server.time()
        now_ms = seconds * 1000 + microseconds // 1000
        live = cast("list[bytes]", self.cluster.server.zrangebyscore(keys.LEASES, now_ms, "+inf"))
        return {lease.decode().partition("|")[0] for lease in live}

    def settled_late(self, worker: Worker) -> int:
        """Return how many of a node's settlements were refused, because it no longer held the job."""
        with self.cluster.stock as client:
            replies: dict[str, Any] = dict(client.control.inspect(timeout=2.0).stats() or {})
        counted = [
            stats["governor"]["counters"]["refused_settlements"]
            for host, stats in replies.items()
            if host.startswith(f"{worker.name}@")
        ]
        return int(counted[0]) if counted else -1


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Return a hub that runs the server, and no node."""
    with network_or_skip() as network:
        socket = tmp_path / "s"
        options = ["--bind", network.hub.address, "--port", str(PORT), "--requirepass", PASSWORD]
        options += ["--unixsocket", str(socket), "--dir", str(tmp_path), "--save", ""]
        log = (tmp_path / "server.log").open("wb")
        process = network.hub.start([server_program(), *options], stdout=log, stderr=log)
        server = plain_client(f"unix://:{PASSWORD}@{socket}")
        cluster = Cluster(broker_url=f"redis+socket://:{PASSWORD}@{socket}", server=server, folder=tmp_path)
        try:
            wait_until(lambda: _answers(server), "the server answers")
            yield Machines(cluster=cluster, network=network)
        finally:
            for worker in cluster.workers:
                worker.process.kill()
                worker.process.wait()
            server.close()
            process.kill()
            process.wait()
            log.close()


def _answers(server: "redis.Redis") -> bool:
    with suppress(redis.ConnectionError):
        return bool(server.ping())
    return False


def test_a_machine_that_joins_late_gets_work_at_once(machines: Machines) -> None:
    """From its lease to its first job; the machine that came first has not hoarded the queue."""
    machines.start("early")
    machines.send("share.batch8", range(300), sleep_seconds=0.2)
    machines.wait_for_starts(1)
    machines.start("late")
    has_lease_ns = time.monotonic_ns()
    late = wait_until(lambda: [run for run in machines.runs() if run.node == "late"], "the late one works")

    assert late[0].started_ns - has_lease_ns < LATEST_START_SECONDS * 1e9
    assert int(machines.cluster.server.llen("share.batch8")) > 0


def test_two_jobs_and_two_idle_machines_are_one_each(machines: Machines) -> None:
    """Each waits until both have one, so a node with both would never end the first."""
    for name in ("first", "second"):
        machines.start(name)
    machines.send("share.batch8", range(2), wait_for_nodes=2)
    machines.wait_for_starts(2)

    assert sorted(run.node for run in machines.runs()) == ["first", "second"]


def test_a_machine_that_is_cut_off_loses_its_job_to_another_and_comes_back(machines: Machines) -> None:
    """The other does the work; what the first has made is refused, and it takes work again when healed."""
    cut, other = machines.start("cut"), machines.start("other")
    gate = machines.cluster.folder / "gate"
    machines.send("share.batch8", range(2), wait_for_nodes=2, wait_for_file=str(gate))
    machines.wait_for_starts(2)
    machines.hosts["cut"].unplug()
    gate.touch()
    machines.wait_for_starts(3)
    machines.wait_until_empty()
    machines.hosts["cut"].plug_in()
    wait_until(lambda: machines.leases() == {"cut", "other"}, "the machine is back")
    wait_until(lambda: machines.settled_late(cut) == 1, "its late settlement is refused")
    machines.send("share.batch8", range(2, 4), wait_for_nodes=2)
    machines.wait_for_starts(5)
    machines.wait_until_empty()

    by_number = {number: [run.node for run in machines.runs() if run.number == number] for number in range(4)}
    lost = next(number for number in range(2) if len(by_number[number]) == 2)
    assert by_number[lost] == ["cut", "other"]
    assert by_number[1 - lost] == ["other"]
    assert machines.settled_late(other) == 0
    assert {len(by_number[number]) for number in (2, 3)} == {1}


def test_the_machine_that_runs_redis_is_cut_off_from_all(machines: Machines) -> None:
    """Nobody could renew, so nobody is to blame: all go on when the cables are back, each job once."""
    for name in ("first", "second"):
        machines.start(name)
    gate = machines.cluster.folder / "gate"
    machines.send("share.batch8", range(20), wait_for_file=str(gate))
    machines.wait_for_starts(2)
    for host in machines.hosts.values():
        host.unplug()
    time.sleep(2 * LEASE_SECONDS)
    gate.touch()
    for host in machines.hosts.values():
        host.plug_in()
    machines.wait_until_empty()

    assert Counter(run.number for run in machines.runs()) == Counter(range(20))
