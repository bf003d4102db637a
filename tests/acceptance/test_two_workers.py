"""Two workers on parts of one machine share a project over an external server, whatever becomes of one."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from celery import Celery

from tasks.store import Store
from tasks.summary import summarise
from tests.acceptance.conftest import TIEPOINT, artefacts, tiepoint, wait_until
from tests.conftest import LOCK_FOLDER, PhotoSet
from tests.external_server import external_server
from tests.plain_runner import PlainResult
from worker.client import Client

GIB = 2**30
PROJECT_ID = "shared"
PARTITION = ("--memory", "4GiB", "--cpus", "1", "--profile", "dedicated")

pytestmark = pytest.mark.skipif(
    (os.cpu_count() or 1) < 2 or psutil.virtual_memory().total < 8 * GIB,
    reason="two workers of 4 GiB and one CPU need a machine of 8 GiB and two",
)


@dataclass(kw_only=True)
class Cluster:
    """A server, a store, and the workers that one machine runs for them."""

    broker_url: str
    folder: Path
    photos: Path
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def store(self) -> Store:
        """Return the store, as all see it."""
        return Store(self.folder / "store")

    @property
    def where(self) -> list[str]:
        """Return what every worker of the cluster is told."""
        folders = ["--store", str(self.folder / "store"), "--import-root", str(self.photos)]
        return ["--broker", self.broker_url, *folders]

    def start_worker(self, *options: str, **environment: str) -> None:
        """Start a worker as a user does."""
        command = [*TIEPOINT, "worker", *self.where, *options]
        with (self.folder / f"worker{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                command, env={**os.environ, **self.machine, **environment}, stdout=log, stderr=log
            )
        self.workers.append(worker)

    @property
    def machine(self) -> dict[str, str]:
        """Return the environment of processes of one machine."""
        return {LOCK_FOLDER: str(self.folder / "machine")}

    def start_project(self) -> None:
        """Make a project of the photos and start it."""
        with Client(self.broker_url, self.store.root) as client:
            client.submit(self.photos, name=PROJECT_ID, until="tracks")

    def is_done(self) -> bool:
        """Tell whether the project is through."""
        with Client(self.broker_url, self.store.root) as client:
            return client.state(PROJECT_ID).state == "done"

    def summary(self) -> dict[str, Any]:
        """Return what the project has come to."""
        return summarise(self.store, self.store.project(PROJECT_ID))

    def settled_jobs(self) -> dict[str, int]:
        """Return how many jobs each worker that answers has settled, by its node's name."""
        with Celery(broker=self.broker_url) as stock:
            replies: dict[str, Any] = dict(stock.control.inspect(timeout=2.0).stats() or {})
        return {
            host.partition("@")[0]: stats["governor"]["counters"]["settled"]
            for host, stats in replies.items()
        }


@pytest.fixture
def kermit_cluster(photos: PhotoSet, tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster without workers, with the photos of kermit."""
    with external_server(tmp_path) as broker_url:
        cluster = Cluster(broker_url=broker_url, folder=tmp_path, photos=photos("kermit"))
        cluster.store.create()
        with killed(cluster.workers):
            yield cluster


@contextmanager
def killed(workers: "list[subprocess.Popen[bytes]]") -> Iterator[None]:
    """Kill all workers after the block."""
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def test_two_partitions_share_a_project_and_change_nothing(
    kermit_cluster: Cluster, plain_kermit: PlainResult
) -> None:
    """Each does its part; the tracks are the plain run's, byte for byte."""
    for _ in range(2):
        kermit_cluster.start_worker(*PARTITION)
    wait_until(lambda: len(kermit_cluster.settled_jobs()) == 2, "both workers answer")
    kermit_cluster.start_project()
    wait_until(kermit_cluster.is_done, "the project is done")

    jobs = kermit_cluster.settled_jobs()
    assert min(jobs.values()) >= 5
    assert max(jobs) == f"{min(jobs)}-2"
    assert kermit_cluster.summary()["tracks_sha256"] == plain_kermit.tracks_sha256


def test_a_worker_that_is_killed_midway_changes_nothing(
    kermit_cluster: Cluster, plain_kermit: PlainResult
) -> None:
    """SIGKILL: what it held goes to the other when its lease has ended."""
    for name in ("lasting", "killed"):
        kermit_cluster.start_worker(*PARTITION, "--name", name, TIEPOINT_LEASE_SECONDS="2")
    wait_until(lambda: len(kermit_cluster.settled_jobs()) == 2, "both workers answer")
    kermit_cluster.start_project()
    wait_until(lambda: artefacts(kermit_cluster.store.root, "matcher.run") >= 5, "matches appear")
    before = kermit_cluster.settled_jobs()
    kermit_cluster.workers[1].kill()
    wait_until(kermit_cluster.is_done, "the project is done")

    after = kermit_cluster.settled_jobs()
    assert before["killed"] > 0
    assert after["lasting"] > before["lasting"]
    assert set(after) == {"lasting"}
    assert kermit_cluster.summary()["tracks_sha256"] == plain_kermit.tracks_sha256


def test_a_second_whole_worker_is_told_how_both_fit(kermit_cluster: Cluster) -> None:
    """As a user types it, on the machine as it is; what it is told to do works."""
    kermit_cluster.start_worker("--profile", "dedicated")
    wait_until(kermit_cluster.settled_jobs, "the first worker answers")
    refused = tiepoint("worker", *kermit_cluster.where, **kermit_cluster.machine)
    kermit_cluster.workers[0].kill()
    kermit_cluster.workers[0].wait()
    told = re.search(r"e\.g\. (--memory \w+ --cpus \d+) each", refused.stderr)
    options = told[1].split() if told else []
    for _ in range(2):
        kermit_cluster.start_worker(*options, "--profile", "dedicated")

    assert refused.returncode == 2
    assert told is not None
    wait_until(lambda: len(kermit_cluster.settled_jobs()) == 2, "both run")
