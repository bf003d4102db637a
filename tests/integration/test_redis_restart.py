"""A server that keeps its data is killed and restarted while jobs run: nothing is lost or doubled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Cluster, wait_until
from tests.lasting_server import LastingServer


@pytest.fixture
def lasting_server(tmp_path: Path) -> Iterator[LastingServer]:
    """Return a running server that survives being killed."""
    server = LastingServer(tmp_path)
    server.start()
    yield server
    server.kill()
    server.client.close()


def test_jobs_that_run_while_the_server_restarts_run_once(
    lasting_server: LastingServer, tmp_path: Path
) -> None:
    """Running batches finish, their settlements wait, the worker reconnects and goes on."""
    url = f"redis+socket://{lasting_server.socket_path}"
    cluster = Cluster(broker_url=url, server=lasting_server.client, folder=tmp_path)
    for number in range(24):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log, "sleep_seconds": 0.3})
    worker = cluster.start_worker(lease_seconds=10)
    for _ in range(2):
        before = len(cluster.runs())
        wait_until(lambda: len(cluster.runs()) >= before + 3, "jobs run")  # noqa: B023 - awaited here
        lasting_server.kill()
        lasting_server.start()
    wait_until(lambda: len(cluster.runs()) >= 24 and not cluster.inflight(), "all jobs are settled")
    worker.stop()

    assert sorted(number for number, _, _ in cluster.runs()) == list(range(24))
    assert "Connection to broker lost" in worker.log
    assert cluster.dead() == []
