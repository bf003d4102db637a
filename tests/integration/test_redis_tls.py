"""A queue behind TLS and a password: everybody gets in who may, and is told in a sentence who may not."""

import shutil
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from tests.external_server import external_server
from tests.flower_process import running_flower
from tests.integration.conftest import Cluster, killed, wait_until
from tests.redis_proxy import redis_proxy, self_signed
from worker.cli import app
from worker.connections import plain_client
from worker.settings import Settings
from worker.trace_command import ask_nodes

PASSWORD = "opensesame"  # noqa: S105 - of a server that lives for one test


@dataclass(frozen=True)
class Ports:
    """Where a server with a password listens, plainly and behind TLS."""

    server: "redis.Redis"
    plain: int
    tls: int
    certificate: Path

    def url(self, *, password: str = PASSWORD, options: str | None = None) -> str:
        """Return a URL of the TLS port; it names the certificate unless other options are given."""
        query = f"ssl_ca_certs={self.certificate}" if options is None else options
        return f"rediss://:{password}@127.0.0.1:{self.tls}/0?{query}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """Make a certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("making a certificate takes the program openssl")
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def ports(tmp_path: Path, certificate: tuple[ssl.SSLContext, Path]) -> Iterator[Ports]:
    """Run a server with a password, and TLS in front of it."""
    (tmp_path / "server").mkdir()
    with external_server(tmp_path / "server") as url:
        plain = int(url.rsplit(":", 1)[1].partition("/")[0])
        with plain_client(url) as server, redis_proxy(plain, certificate[0]) as proxy:
            server.config_set("requirepass", PASSWORD)
            with plain_client(f"redis://:{PASSWORD}@127.0.0.1:{plain}/0") as known:
                yield Ports(server=known, plain=plain, tls=proxy.port, certificate=certificate[1])


def test_worker_client_and_flower_get_in_and_show_no_password(ports: Ports, tmp_path: Path) -> None:
    """Every connection of theirs goes through TLS and says the password; no log has it, and no answer."""
    url = Settings(broker_url=ports.url()).broker_url
    cluster = Cluster(broker_url=url, server=ports.server, folder=tmp_path)
    with killed(cluster.workers):
        worker = cluster.start_worker()
        cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
        wait_until(lambda: len(cluster.runs()) == 1, "the job runs")
        answers = ask_nodes(url, alive=1, timeout_seconds=20)
        with cluster.stock as stock:
            told = str(stock.control.inspect(timeout=20, limit=1).conf())
        with running_flower(url, tmp_path) as flower:
            wait_until(lambda: "one" in flower.rows(), "Flower has heard of the worker")
            wait_until(flower.workers, "the worker has answered")
            lengths = flower.queue_lengths()
        doctor = CliRunner().invoke(app, ["doctor", "--broker", url, "--json"])

    assert [answer.node for answer in answers] == ["one"]
    assert lengths["noop"] == 0
    assert '"problem"' not in doctor.stdout
    assert "tiepoint" in told
    assert [PASSWORD in text for text in (worker.log, told, flower.log, doctor.stdout)] == [False] * 4


def refused(*command: str) -> str:
    """Run a command that fails; return its exit code and what it says, in one line."""
    result = CliRunner().invoke(app, list(command))
    return f"{result.exit_code}: {result.stderr.strip()}"


def test_a_wrong_password_a_strange_certificate_and_the_wrong_port_are_told_in_a_sentence(
    ports: Ports, tmp_path: Path
) -> None:
    """With what to do; a client fails, and a worker that can never get in does not start."""
    store = str(tmp_path)
    wrong_password, strange = ports.url(password="guessed"), ports.url(options="")  # noqa: S106
    plain_to_tls = f"redis://:{PASSWORD}@127.0.0.1:{ports.tls}/0"

    assert refused("status", "--broker", wrong_password, "--store", store).startswith("1: error: the queue")
    told = [
        refused("worker", "--broker", wrong_password, "--store", store),
        refused("worker", "--broker", strange, "--store", store),
        refused("node", "--broker", plain_to_tls),
    ]
    assert [sentence[:2] for sentence in told] == ["2:", "2:", "1:"]
    assert "must hold the right password" in told[0]
    assert "name the certificate of its authority" in told[1]
    assert "rediss:// where it speaks TLS" in told[2]
    assert [sentence.count("\n") for sentence in told] == [0, 0, 0]
    assert ["guessed" in told[0], PASSWORD in told[1], PASSWORD in told[2]] == [False] * 3


def test_celery_checks_the_certificate_too(ports: Ports, tmp_path: Path) -> None:
    """Its transport does not by itself: whoever answers would get the password."""
    url = Settings(broker_url=ports.url(options="")).broker_url
    cluster = Cluster(broker_url=url, server=ports.server, folder=tmp_path)

    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        cluster.send("noop")
