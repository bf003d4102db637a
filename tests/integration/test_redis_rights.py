"""The users that docs/operations.md makes: their rights suffice, and what is missing is named."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from tests.conftest import PhotoSet
from tests.external_server import external_server
from tests.flower_process import running_flower
from tests.integration.conftest import REPOSITORY, Cluster, killed, wait_until
from worker.client import Client
from worker.connections import plain_client
from worker.doctor import examine
from worker.findings import State
from worker.queue_at_start import check_rights
from worker.redis_scripts import Script, source
from worker.rights import CLIENT_PROBES, WORKER_PROBES
from worker.settings import Settings

PAGE = (REPOSITORY / "docs" / "operations.md").read_text("utf-8")
IGNORED = {"client|setinfo"}
"""redis-py says which library it is, and goes on where it may not."""


def between(mark: str) -> str:
    """Return what stands between two marks of the page, without its indentation."""
    return "\n".join(line.strip() for line in _inside(mark).splitlines() if line.strip())


def _inside(mark: str) -> str:
    return PAGE.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0]


@dataclass
class Guarded:
    """A server with the users of the page."""

    server: "redis.Redis"
    port: int

    def url(self, role: str) -> str:
        """Return a user's URL."""
        return f"redis://tiepoint-{role}:{role.upper()}-PASSWORD@127.0.0.1:{self.port}/0"

    def denied(self) -> set[str]:
        """Return what users tried and were not allowed."""
        log: list[Any] = self.server.acl_log()
        return {f"{one['username']}: {one['object']}" for one in log if one["object"] not in IGNORED}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """Run a server with the users of the page."""
    (tmp_path / "server").mkdir()
    with external_server(tmp_path / "server") as url, plain_client(url) as server:
        for line in between("acl").splitlines():
            server.execute_command(*line.split())
        yield Guarded(server=server, port=int(url.rsplit(":", 1)[1].partition("/")[0]))


@pytest.fixture
def cluster(guarded: Guarded, tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster whose workers are the page's."""
    cluster = Cluster(broker_url=guarded.url("worker"), server=guarded.server, folder=tmp_path)
    with killed(cluster.workers):
        yield cluster


def test_a_whole_small_project_runs_under_the_rights_of_the_page(
    guarded: Guarded, cluster: Cluster, photos: PhotoSet, tmp_path: Path
) -> None:
    """Submitted, watched, explained, cancelled and retried; nothing that was tried was denied."""
    worker = cluster.start_worker(kind_modules="[]", import_roots=json.dumps([str(photos("kermit"))]))
    with Client(guarded.url("client"), tmp_path / "store") as client:
        project = client.submit(sorted(photos("kermit").iterdir())[:2], name="small")
        *_, state = client.watch(project)
        client.explain(project)
        client.blocked()
        client.retry(project)
        client.cancel(project)
    worker.stop()

    assert state.state == "done"
    assert guarded.denied() == set()


def test_flower_looks_under_the_rights_of_the_page(
    guarded: Guarded, cluster: Cluster, tmp_path: Path
) -> None:
    """What workers answer and tell by events, and how long the queues are."""
    cluster.start_worker(kind_modules="[]")
    with running_flower(guarded.url("flower"), tmp_path) as flower:
        wait_until(lambda: "one" in flower.rows(), "it has heard of the worker")
        wait_until(flower.workers, "the worker has answered")
        lengths = flower.queue_lengths()

    assert lengths["features.extract"] == 0
    assert guarded.denied() == set()


@pytest.mark.parametrize("role", ["client", "worker"])
def test_doctor_finds_the_rights_of_the_page_in_order(guarded: Guarded, tmp_path: Path, role: str) -> None:
    """And may look at everything itself."""
    settings = Settings(broker_url=guarded.url(role), lock_folder=tmp_path)

    found = list(examine(settings))

    assert [one for one in found if one.state is State.PROBLEM] == []
    assert ("is none for workers" in "".join(one.told for one in found)) is (role == "client")


def test_every_right_of_a_worker_is_used() -> None:
    """What the page allows is what is looked for, and a handful that only a connection needs."""
    allowed = set(re.findall(r"\+(\S+)", "\n".join(_lines_of("worker"))))
    needed = {_right(probe) for probe in WORKER_PROBES}

    assert allowed - needed == {"discard", "exec", "multi", "select", "unsubscribe"}
    assert needed - allowed == set()


def test_every_right_of_a_client_is_used() -> None:
    """The same."""
    allowed = set(re.findall(r"\+(\S+)", "\n".join(_lines_of("client"))))
    needed = {_right(probe) for probe in CLIENT_PROBES}

    assert allowed - needed == {"discard", "exec", "multi", "select"}
    assert needed - allowed == set()


def _lines_of(role: str) -> list[str]:
    return [line for line in between("acl").splitlines() if f"tiepoint-{role} " in line]


def _right(probe: tuple[str | int, ...]) -> str:
    command = str(probe[0]).lower()
    return f"{command}|{str(probe[1]).lower()}" if command in {"client", "script"} else command


def test_whatever_the_scripts_call_is_looked_for() -> None:
    """A new command in a script needs its right."""
    called = {name for script in Script for name in re.findall(r"redis\.call\('([A-Z]+)'", source(script))}

    assert called - {str(probe[0]) for probe in WORKER_PROBES} == set()


def test_a_worker_whose_user_is_a_clients_takes_nothing(guarded: Guarded) -> None:
    """All that is lacking is named at once."""
    with (
        plain_client(guarded.url("client")) as client,
        pytest.raises(NoPermissionError, match=r"may not: CLIENT ID, .*RPOP tiepoint:dead"),
    ):
        check_rights(client, ["features.extract"])
    with plain_client(guarded.url("worker")) as client:
        check_rights(client, ["features.extract"])


def test_a_worker_whose_user_lacks_a_right_says_which_and_works_when_it_has_it(
    guarded: Guarded, cluster: Cluster
) -> None:
    """It does not end, and needs no restart."""
    guarded.server.execute_command("ACL", "SETUSER", "tiepoint-worker", "~noop*")  # type: ignore[no-untyped-call]
    worker = cluster.start_worker()
    guarded.server.execute_command("ACL", "SETUSER", "tiepoint-worker", "-rpop")  # type: ignore[no-untyped-call]
    _send(guarded, cluster)
    wait_until(lambda: "may not" in worker.log, "it complains")
    guarded.server.execute_command("ACL", "SETUSER", "tiepoint-worker", "+rpop")  # type: ignore[no-untyped-call]
    wait_until(lambda: len(cluster.runs()) == 1, "the job runs")

    assert "may not: RPOP" in worker.log
    assert "docs/operations.md" in worker.log


def _send(guarded: Guarded, cluster: Cluster) -> None:
    admin = Cluster(
        broker_url=f"redis://127.0.0.1:{guarded.port}/0", server=guarded.server, folder=cluster.folder
    )
    admin.send("noop", kwargs={"number": 1, "log": cluster.run_log})


def test_messages_that_stock_workers_have_left_are_given_back_as_the_page_shows(
    guarded: Guarded, cluster: Cluster
) -> None:
    """Popped by a stock consumer that then ends without a word: back in its list, and run once."""
    _send(guarded, cluster)
    url = f"redis://127.0.0.1:{guarded.port}/0"
    stock = [sys.executable, "-c", _POP_AND_DIE.format(url=url)]
    subprocess.run(stock, check=False, timeout=60)
    left = guarded.server.hlen("unacked")
    lines = [line.removeprefix("    ") for line in _inside("restore").splitlines()]
    code = "\n".join(lines).replace("redis://nas:6379/0", url)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    assert left == 1
    assert guarded.server.hlen("unacked") == 0
    assert guarded.server.llen("noop") == 1


_POP_AND_DIE = """
import os
from celery import Celery
with Celery(broker="{url}").connection_for_read() as connection:
    queue = connection.SimpleQueue("noop")
    queue.get(timeout=10)
    os._exit(0)
"""
