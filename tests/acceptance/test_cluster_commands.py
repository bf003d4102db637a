"""A user's way through a cluster: submit, watch, status, export; clients that are killed lose nothing."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.conftest import TIEPOINT, Finished, start_tiepoint, tiepoint, wait_until
from tests.conftest import PhotoSet
from worker.client import Client
from worker.embedded import embedded_server

SMALL = ("--max-image-size", "400", "--features", "orb")
KILLED_AFTER_SECONDS = (0.2, 0.6, 1.0, 1.4, 1.8)
"""Before, within and after what a submission does; which one does not matter."""


@dataclass(frozen=True)
class Cluster:
    """A server and a store that commands are told of by the environment."""

    broker_url: str
    store: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return what names the cluster."""
        machine = str(self.store.parent / "machine")
        where = {"TIEPOINT_BROKER_URL": self.broker_url, "TIEPOINT_STORE": str(self.store)}
        return {**where, "TIEPOINT_LOCK_FOLDER": machine}

    def run(self, *arguments: str | Path) -> Finished:
        """Run a command to its end."""
        return tiepoint(*arguments, **self.environment)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster without workers."""
    (tmp_path / "store").mkdir()
    with embedded_server() as server:
        yield Cluster(broker_url=server.broker_url, store=tmp_path / "store")


@pytest.fixture
def worker(cluster: Cluster, photos: PhotoSet) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker that may import kermit."""
    where = ["--broker", cluster.broker_url, "--store", str(cluster.store), "--name", "nimble"]
    command = [*TIEPOINT, "worker", *where, "--profile", "dedicated", "--import-root", str(photos("kermit"))]
    with (cluster.store.parent / "worker.log").open("wb") as log:
        environment = {**os.environ, **cluster.environment}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    with Client(cluster.broker_url, cluster.store) as client:
        wait_until(client.nodes, "the worker is alive")
    yield process
    process.send_signal(signal.SIGTERM)
    process.wait()


@pytest.mark.usefixtures("worker")
def test_photos_are_submitted_watched_and_exported(
    cluster: Cluster, photos: PhotoSet, tmp_path: Path
) -> None:
    """Each command names the next; the same photos again are the same project."""
    submitted = cluster.run("submit", photos("kermit"), "--name", "frog", *SMALL)
    watched = cluster.run("watch", "frog", "--json")
    again = cluster.run("submit", photos("kermit"), "--name", "frog", *SMALL, "--watch", "--json")
    exported = cluster.run("export", "frog", "--out", tmp_path / "out")
    listed = cluster.run("status", "--json")

    assert (submitted.returncode, submitted.stdout) == (0, "frog\n"), submitted.stderr
    assert "`tiepoint watch frog`" in submitted.stderr
    assert (watched.returncode, watched.summary["state"]) == (0, "done"), watched.stderr
    assert watched.summary["images"] == {"imported": 11, "failed": 0}
    assert watched.summary["tracks_sha256"] == again.summary["tracks_sha256"] is not None
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "out").is_dir()
    assert [row["project"] for row in listed.summary["projects"]] == ["frog"]


def test_a_client_killed_at_any_moment_loses_nothing(cluster: Cluster, photos: PhotoSet) -> None:
    """Submitting again leads to one project, whatever the killed ones had come to."""
    for seconds in KILLED_AFTER_SECONDS:
        client = start_tiepoint(
            "submit", photos("kermit"), "--until", "import", *SMALL, **cluster.environment
        )
        time.sleep(seconds)
        client.kill()
        client.communicate()
    submitted = cluster.run("submit", photos("kermit"), "--until", "import", *SMALL, "--json")

    assert submitted.summary == {"project": "images"}
    with Client(cluster.broker_url, cluster.store) as client_of_ours:
        assert client_of_ours.projects() == ["images"]
        assert client_of_ours.state("images").outstanding == 1


def test_a_project_waits_for_its_first_worker_and_says_so(cluster: Cluster, photos: PhotoSet) -> None:
    """At submission, in `explain` and in `watch`, which a signal ends without ending the project."""
    submitted = cluster.run("submit", photos("kermit"), "--name", "frog", *SMALL)
    explained = json.loads(cluster.run("explain", "frog", "--json").stdout)
    watching = start_tiepoint("watch", "frog", **cluster.environment)
    assert watching.stderr is not None
    line = watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    _, rest = watching.communicate()

    assert "no worker is connected yet" in submitted.stderr
    assert explained["state"] == "running"
    assert "no worker is connected" in explained["sentences"][-1]
    assert line.startswith("no worker is connected: the project waits for one")
    assert (watching.returncode, "the project goes on" in rest) == (130, True)


def test_a_cancelled_project_is_told_and_goes_on(cluster: Cluster, photos: PhotoSet) -> None:
    """`watch` ends with 1, `resume` starts it again."""
    cluster.run("submit", photos("kermit"), "--name", "frog", *SMALL)
    cancelled = cluster.run("cancel", "frog", "--json")
    watched = cluster.run("watch", "frog")
    twice = cluster.run("cancel", "frog", "--json")
    resumed = cluster.run("resume", "frog", "--until", "import")

    assert json.loads(cancelled.stdout) == {"project": "frog", "removed": 1, "still_running": 0}
    assert (watched.returncode, "frog is cancelled" in watched.stderr) == (1, True)
    assert json.loads(twice.stdout)["removed"] == 0
    assert (resumed.returncode, "`tiepoint watch frog`" in resumed.stderr) == (0, True)
    with Client(cluster.broker_url, cluster.store) as client:
        assert client.state("frog").state == "running"
