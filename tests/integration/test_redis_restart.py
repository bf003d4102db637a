"""A server that keeps its data ends and is restarted while jobs run: nothing is lost or doubled."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Cluster, killed, wait_until
from tests.lasting_server import LastingServer


@pytest.fixture
def lasting_server(tmp_path: Path) -> Iterator[LastingServer]:
    """Return a running server that survives being killed."""
    server = LastingServer(tmp_path)
    server.start()
    yield server
    server.kill()
    server.client.close()


def end_in_order(server: LastingServer) -> None:
    """Tell a server to end, and wait until it has."""
    server.client.shutdown()
    server.kill()


ENDINGS: dict[str, Callable[[LastingServer], None]] = {"killed": LastingServer.kill, "told": end_in_order}


@pytest.mark.parametrize("ending", ENDINGS)
def test_jobs_that_run_while_the_server_restarts_run_once(
    lasting_server: LastingServer, tmp_path: Path, ending: str
) -> None:
    """Three times: running batches finish, their settlements wait, the worker reconnects and goes on."""
    cluster = Cluster(broker_url=lasting_server.broker_url, server=lasting_server.client, folder=tmp_path)
    with killed(cluster.workers):
        for number in range(40):
            job = {"number": number, "log": cluster.run_log, "sleep_seconds": 0.2}
            cluster.send("noop", kwargs=job)
        worker = cluster.start_worker(lease_seconds=10)
        for before in (3, 13, 23):
            wait_until(lambda: len(cluster.runs()) >= before, "jobs run")  # noqa: B023 - awaited here
            ENDINGS[ending](lasting_server)
            lasting_server.start()
        wait_until(lambda: len(cluster.runs()) >= 40 and not cluster.inflight(), "all jobs are settled")
        worker.stop()

    assert sorted(number for number, _, _ in cluster.runs()) == list(range(40))
    assert worker.log.count("Connection to broker lost") >= 3
    assert cluster.dead() == []
