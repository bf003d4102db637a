"""A server that keeps its data is killed and restarted while jobs run: nothing is lost or doubled."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.conftest import Cluster, wait_until
from worker.connections import plain_client
from worker.embedded import server_program


class LastingServer:
    """A server with an append-only file on a unix socket."""

    def __init__(self, folder: Path) -> None:
        self.socket_path = folder / "r.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.client: redis.Redis = plain_client(f"unix://{self.socket_path}")

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = ["--port", "0", "--unixsocket", str(self.socket_path), "--dir", str(self._folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen([server_program(), *options], stdout=log, stderr=log)
        wait_until(self._answers, "the server answers")

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False


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
