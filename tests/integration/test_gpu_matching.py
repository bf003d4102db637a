"""Who takes the jobs that are matched on a GPU: nodes that can, and projects are refused where none can."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from governor.gpu import GpuFinding
from tasks.errors import ProjectError
from tasks.old_estimates import OLD_ESTIMATES
from tasks.parameters import ExecutionParameters, FeatureParameters, ProjectParameters
from tasks.store import Store
from tests.integration.conftest import Cluster, wait_until
from tests.mock_cards import INTEL, MockCard, changeable_cards, needs_umockdev
from tests.opencl_device import ENVIRONMENT, needs_pocl
from tests.unit.governor.builders import a_uma_gpu
from worker import keys
from worker.client import Client
from worker.gpu_backend import find_backend

pytestmark = [needs_pocl, needs_umockdev, pytest.mark.usefixtures("_card")]

KIND = "matcher.run.gpu"
CARD = MockCard(number=0, vendor=INTEL, device="0x9a49")
ON_GPU = ProjectParameters(
    features=FeatureParameters(extractor="orb"), execution=ExecutionParameters(matcher="gpu")
)


@pytest.fixture
def _card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this machine a card in its RAM."""
    with changeable_cards(tmp_path, CARD) as (_, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield


def use_pocl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let OpenCV compute on the CPU's OpenCL driver."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def submit(cluster: Cluster) -> str:
    """Submit a photo that is to be matched on a GPU."""
    store = cluster.folder / "store"
    photos = store / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    (photos / "a.jpg").write_bytes(b"\xff\xd8\xff")
    with Client(cluster.broker_url, store) as client:
        return client.submit(photos, name="castle", parameters=ON_GPU)


def test_a_node_without_a_device_leaves_these_jobs_to_others_and_projects_are_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a card, but no driver that computes there; a node that can takes the waiting job."""
    Store(cluster.folder / "store").create()
    cluster.start_worker("plain")
    cluster.send(KIND, kwargs={"no_such": 1})
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the other job has run")

    assert (cluster.server.llen(KIND), cluster.server.zcard(keys.large(KIND))) == (1, 0)
    with pytest.raises(ProjectError, match=r"no live node can match on a GPU \(alive: plain\)"):
        submit(cluster)

    use_pocl(monkeypatch)
    cluster.start_worker("able")
    wait_until(cluster.dead, "the waiting job has been taken")

    assert submit(cluster) == "castle"
    assert [dead["reason"] for dead in cluster.dead()][:1] == ["invalid_arguments"]
    assert (cluster.server.hget(keys.node("able"), "gpu_matching")) == b"1"


def test_old_estimates_and_near_misses_reach_a_node_that_can(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old forms come as far as their arguments, which are wrong here; one thread off is told."""
    use_pocl(monkeypatch)
    for old in OLD_ESTIMATES[KIND]:
        for estimate in (old, replace(old, cpu_threads=13)):
            cluster.send(KIND, kwargs={"no_such": 1}, headers={"estimate": estimate.to_header()})
    cluster.start_worker()
    wait_until(lambda: len(cluster.dead()) == 4, "every job has failed")

    told = sorted((dead["reason"], "cpu_threads is 13, not 1" in dead["cause"]) for dead in cluster.dead())
    assert told == [("invalid_arguments", False)] * 2 + [("invalid_estimate", True)] * 2


def test_the_drivers_memory_is_measured_by_whoever_asks_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PoCL brings a compiler along: tens of MiB, which a first batch takes beyond its 10 MiB per pair."""
    use_pocl(monkeypatch)
    backend = find_backend(GpuFinding(gpu=a_uma_gpu()))

    assert backend.is_usable
    assert 10 << 20 < backend.driver_memory_bytes < 1 << 30
