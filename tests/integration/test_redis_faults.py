"""Connections are killed, the server is frozen, cut off, or loses everything while jobs run."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.parameters import FeatureParameters, ProjectParameters
from tests.conftest import PhotoSet
from tests.external_server import external_server
from tests.integration.conftest import Cluster, Worker, killed, wait_until
from tests.redis_proxy import RedisProxy, redis_proxy
from worker import keys
from worker.client import Client
from worker.connections import plain_client

Connection = dict[str, str]
"""One line of CLIENT LIST."""
_LONGER_THAN_A_TIMEOUT_SECONDS = 6.0


def send(cluster: Cluster, first: int, count: int, sleep_seconds: float = 0.2) -> None:
    """Send numbered jobs."""
    for number in range(first, first + count):
        job = {"number": number, "log": cluster.run_log, "sleep_seconds": sleep_seconds}
        cluster.send("noop", kwargs=job)


def wait_until_run(cluster: Cluster, count: int) -> None:
    """Wait until so many jobs have run, and all of them are settled."""
    wait_until(lambda: len(cluster.runs()) >= count and not cluster.inflight(), f"{count} jobs are settled")


def numbers_of_runs(cluster: Cluster) -> list[int]:
    """Return the number of each job that ran, as often as it ran."""
    return sorted(number for number, _, _ in cluster.runs())


def connections(server: "redis.Redis") -> list[Connection]:
    """Return the connections of workers, not our own."""
    found: list[Any] = server.client_list()
    ours = str(server.client_id())
    return [one for one in found if one["id"] != ours]


def is_tracked(one: Connection) -> bool:
    """Tell whether it is the one that looks and claims."""
    return "t" in one["flags"]


def is_subscriber(one: Connection) -> bool:
    """Tell whether it only listens: for wake-ups, or for Celery's remote control."""
    return "P" in one["flags"]


KILLED: dict[str, Callable[[Connection], bool]] = {
    "all": lambda _: True,
    "looking and claiming": is_tracked,
    "listening": is_subscriber,
    "all others": lambda one: not is_tracked(one) and not is_subscriber(one),
}


@pytest.mark.parametrize("which", KILLED)
def test_connections_that_are_killed_again_and_again_cost_no_job(cluster: Cluster, which: str) -> None:
    """Those of the lease and of Celery among the others: the node connects anew, and each job runs once."""
    worker = cluster.start_worker()
    for first in range(0, 12, 4):
        send(cluster, first, 4)
        wait_until(lambda: len(cluster.runs()) > first, "jobs run")  # noqa: B023 - awaited here
        chosen = [one for one in connections(cluster.server) if KILLED[which](one)]
        for one in chosen:
            cluster.server.client_kill_filter(_id=one["id"])
        assert chosen
    wait_until_run(cluster, 12)

    assert numbers_of_runs(cluster) == list(range(12))
    assert cluster.dead() == []
    assert worker.process.poll() is None


def test_a_job_is_heard_of_after_every_connection_was_killed(cluster: Cluster) -> None:
    """An idle node listens again: nothing is left that only the sweep would find."""
    worker = cluster.start_worker()
    cluster.server.client_kill_filter(_type="pubsub")
    cluster.server.client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: worker.log.count("Connected to") == 2, "it has connected anew")
    before = cluster.counter(worker, "wake_ups")
    send(cluster, 0, 1)
    wait_until_run(cluster, 1)

    assert numbers_of_runs(cluster) == [0]
    assert before < cluster.counter(worker, "wake_ups")


@pytest.fixture
def two_workers(cluster: Cluster) -> tuple[Worker, Worker]:
    """Return two workers with leases of a second."""
    return cluster.start_worker("one", lease_seconds=1), cluster.start_worker("two", lease_seconds=1)


def test_a_server_that_is_frozen_for_longer_than_the_leases_loses_and_doubles_nothing(
    cluster: Cluster, two_workers: tuple[Worker, Worker]
) -> None:
    """Nobody is to blame for it, so nobody's lease has ended; what was claimed unseen is given back."""
    info: Any = cluster.server.info("server")
    send(cluster, 0, 20, sleep_seconds=0.5)
    wait_until(lambda: len(cluster.runs()) >= 2, "jobs run")
    os.kill(info["process_id"], signal.SIGSTOP)
    time.sleep(_LONGER_THAN_A_TIMEOUT_SECONDS)
    os.kill(info["process_id"], signal.SIGCONT)
    wait_until_run(cluster, 20)

    assert numbers_of_runs(cluster) == list(range(20))
    assert [worker.log.count("dead_node_given_back") for worker in two_workers] == [0, 0]
    assert cluster.dead() == []


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Cluster, RedisProxy]]:
    """Return a cluster whose connections go through a proxy; what its tests look at does not."""
    (tmp_path / "server").mkdir()
    with external_server(tmp_path / "server") as url, plain_client(url) as server:
        port = int(url.rsplit(":", 1)[1].partition("/")[0])
        with redis_proxy(port) as proxy:
            cluster = Cluster(broker_url=f"redis://127.0.0.1:{proxy.port}/0", server=server, folder=tmp_path)
            with killed(cluster.workers):
                yield cluster, proxy


def test_a_network_that_swallows_everything_for_a_while_loses_and_doubles_nothing(
    proxied: tuple[Cluster, RedisProxy],
) -> None:
    """Half-open connections: what runs ends, its settlements wait, and the node comes back."""
    cluster, proxy = proxied
    send(cluster, 0, 20, sleep_seconds=0.5)
    worker = cluster.start_worker(lease_seconds=10)
    wait_until(lambda: len(cluster.runs()) >= 2, "jobs run")
    proxy.swallow()
    # Longer than the lease lasts. What the main loop meets first, and says, depends on what it is at.
    wait_until(lambda: worker.log.count("lease_not_renewed") >= 5, "it has noticed")
    proxy.heal()
    wait_until_run(cluster, 20)

    assert numbers_of_runs(cluster) == list(range(20))
    assert cluster.dead() == []


def test_a_server_that_has_lost_everything_is_worked_for_all_the_same(cluster: Cluster) -> None:
    """It was restarted without its file: what waited is gone, leases and scripts are made anew."""
    worker = cluster.start_worker()
    send(cluster, 0, 8, sleep_seconds=0.5)
    wait_until(lambda: len(cluster.runs()) >= 2, "jobs run")
    cluster.server.flushall()
    cluster.server.script_flush()
    wait_until(lambda: cluster.server.zcard(keys.LEASES), "it has a lease again")
    send(cluster, 100, 3)
    wait_until(lambda: {100, 101, 102} <= set(numbers_of_runs(cluster)), "what is sent now runs")
    wait_until(lambda: not cluster.inflight(), "all is settled")

    assert len(set(numbers_of_runs(cluster))) == len(cluster.runs())
    assert worker.process.poll() is None


def test_a_project_that_redis_has_lost_is_unknown_until_it_is_resumed(
    cluster: Cluster, photos: PhotoSet, tmp_path: Path
) -> None:
    """The store has what is finished; the rest is planned anew."""
    folder = photos("kermit")
    worker = cluster.start_worker(kind_modules="[]", import_roots=json.dumps([str(folder)]))
    small = ProjectParameters(features=FeatureParameters(extractor="orb", max_image_size_px=400))
    with Client(cluster.broker_url, tmp_path / "store") as client:
        project = client.submit(sorted(folder.iterdir())[:4], name="frog", parameters=small)
        wait_until(lambda: client.state(project).stages.get("features"), "features are planned")
        cluster.server.flushall()
        cluster.server.script_flush()
        lost = client.state(project).state
        said = client.explain(project).sentences[0]
        client.retry(project)
        *_, found = client.watch(project)
        failures = client.project(project).failures()

    assert lost == "unknown"
    assert "`tiepoint resume` starts it" in said
    assert (found.state, list(failures)) == ("done", [])
    assert worker.process.poll() is None
