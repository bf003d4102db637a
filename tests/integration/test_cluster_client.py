"""The Python client on real nodes: submit, watch, cancel, retry, explain; photos that not every node sees."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.errors import ProjectError
from tests.integration.conftest import Cluster, wait_until
from worker import keys
from worker.client import Client


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """Return a client of the cluster, whose store is there and empty."""
    modules = ["tests.integration.noop_kinds"]
    with Client(cluster.broker_url, cluster.folder / "store", kind_modules=modules) as client:
        yield client


def photos_in(folder: Path, count: int = 3) -> Path:
    """Make a folder of small photos, no two alike."""
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (64, 64), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return folder


def roots(*folders: Path) -> str:
    """Return a setting of import roots."""
    return json.dumps([str(folder) for folder in folders])


def last_state(client: Client, project: str) -> str:
    """Watch a project to its end."""
    return [state.state for state in client.watch(project, poll_seconds=0.05)][-1]


def causes(client: Client, project: str) -> set[str]:
    """Return why items of a project have failed."""
    return {failure.cause for _, _, failure in client.project(project).failures()}


def test_a_submitted_project_runs_to_its_end(cluster: Cluster, client: Client) -> None:
    """On photos that the node may import; the store has the images then."""
    photos = photos_in(cluster.folder / "castle")
    cluster.start_worker(import_roots=roots(photos))
    name = client.submit(photos, until="features")

    assert (name, last_state(client, name)) == ("castle", "done")
    assert len(client.project(name).images()) == 3
    assert client.projects() == ["castle"]
    assert client.project(name).failures() == []


def test_photos_in_the_store_need_no_import_root(cluster: Cluster, client: Client) -> None:
    """A node with no root at all sees them, at a path that the client never names."""
    cluster.start_worker()
    name = client.submit(photos_in(cluster.folder / "store" / "photos"), until="import")

    assert last_state(client, name) == "done"
    assert len(client.project(name).images()) == 3


def test_photos_that_no_node_may_read_are_refused_at_submission(cluster: Cluster, client: Client) -> None:
    """Nothing is made of them."""
    cluster.start_worker()

    with pytest.raises(ProjectError, match=r"no live node may import from .*/castle"):
        client.submit(photos_in(cluster.folder / "castle"))
    assert client.projects() == []


def test_a_node_on_another_store_is_told_at_submission(cluster: Cluster, client: Client) -> None:
    """By its name and its folder."""
    (cluster.folder / "scratch").mkdir()
    cluster.start_worker("far", store=cluster.folder / "scratch")

    with pytest.raises(ProjectError, match=r"another store than .*: far .*/scratch"):
        client.submit(photos_in(cluster.folder / "castle"))


def test_a_photo_that_nobody_sees_fails_with_node_path_and_cure(cluster: Cluster, client: Client) -> None:
    """It was submitted while no node was alive."""
    photos = photos_in(cluster.folder / "castle", 1)
    name = client.submit(photos, until="import")
    cluster.start_worker("blind")

    assert last_state(client, name) == "done"
    (failure,) = [failure for _, _, failure in client.project(name).failures()]
    assert f"{photos}/0.jpg lies outside" in failure.cause
    assert "(node blind; no other live node may read it)" in failure.cause
    assert "--import-root" in failure.cure


def test_a_node_that_does_not_see_a_photo_leaves_it_to_one_that_does(
    cluster: Cluster, client: Client
) -> None:
    """The blind one is alone at first and takes them; every photo is imported all the same."""
    photos = photos_in(cluster.folder / "castle", 8)
    cluster.start_worker("blind", lease_seconds=30)
    sees = cluster.start_worker("sees", import_roots=roots(photos), lease_seconds=30)
    to_it: dict[str, Any] = {"destination": [f"sees@{socket.gethostname()}"], "reply": True, "timeout": 5}
    with cluster.stock as app:
        app.control.cancel_consumer("import.images", **to_it)
    name = client.submit(photos, until="import")
    wait_until(lambda: cluster.server.zcard(keys.DELAYED), "the blind one has given photos back")
    with cluster.stock as app:
        app.control.add_consumer("import.images", **to_it)

    assert last_state(client, name) == "done", sees.log
    assert causes(client, name) == set()
    assert len(client.project(name).images()) == 8


def test_a_photo_that_is_gone_for_the_only_node_fails_at_once(cluster: Cluster, client: Client) -> None:
    """There is nobody to ask."""
    photos = photos_in(cluster.folder / "castle", 2)
    name = client.submit(photos, until="import")
    (photos / "1.jpg").unlink()
    cluster.start_worker("lonely", import_roots=roots(photos))

    assert last_state(client, name) == "done"
    (cause,) = causes(client, name)
    assert cause.startswith("1.jpg cannot be imported")
    assert "node lonely" in cause


def test_a_cancelled_project_stops_and_others_go_on(cluster: Cluster, client: Client) -> None:
    """A job that would run for ten minutes is killed; later the project goes on from the store."""
    cluster.start_worker(cpus=1)
    name = client.submit(photos_in(cluster.folder / "store" / "castle"), until="import")
    last_state(client, name)
    long_job = {"sleep_seconds": 600, "log": cluster.run_log, "number": 7}
    place = {"project": name, "stage": "import", "item": "long"}
    cluster.server.hset(keys.project(name), "state", "running")
    cluster.send("noop", kwargs=long_job, headers=place)
    wait_until(cluster.runs, "the long job runs")
    cluster.send("noop", kwargs={"number": 8, "log": cluster.run_log}, headers={**place, "item": "next"})
    cluster.send("noop", kwargs={"number": 9, "log": cluster.run_log})
    done = client.cancel(name)
    wait_until(lambda: len(cluster.runs()) == 2, "the job of nobody runs")

    assert (done.removed, done.still_running) == (1, 0)
    assert [number for number, _, _ in cluster.runs()] == [7, 9]
    assert client.state(name).state == "cancelled"
    assert causes(client, name) == set()
    client.retry(name)
    assert last_state(client, name) == "done"


def test_explaining_says_where_a_job_is(cluster: Cluster, client: Client) -> None:
    """Behind which others, on which node since when, until when parked, what for it has failed."""
    cluster.start_worker("nimble", cpus=1)
    running = cluster.send("noop", kwargs={"sleep_seconds": 600, "log": cluster.run_log})
    wait_until(cluster.runs, "the job runs")
    first, second = cluster.send("noop"), cluster.send("noop", priority=0)
    explained = {job: client.explain(job) for job in (running, first, second, "no-such-job")}

    assert [explained[job].state for job in explained] == ["claimed", "waiting", "waiting", "unknown"]
    assert "node nimble has claimed it, and has run it since 20" in explained[running].sentences[1]
    assert explained[second].facts["position"] == 1
    assert explained[first].sentences[1].endswith("behind 0 of 2 jobs")


def test_explaining_finds_parked_set_aside_and_failed_jobs(cluster: Cluster, client: Client) -> None:
    """With the seconds, the bytes and the cause."""
    cluster.start_worker("small", memory_bytes=2 << 30)
    failing = cluster.send("noop", kwargs={"fail": True})
    later = cluster.send("noop", countdown=600)
    large = cluster.send("noop", kwargs={"needs_bytes": 1 << 40})
    wait_until(lambda: cluster.dead() and cluster.server.zcard(keys.DELAYED), "one has failed, one is parked")
    wait_until(lambda: cluster.server.zcard(keys.large("noop")), "one is set aside")
    states = [client.explain(job).state for job in (failing, later, large)]

    assert states == ["failed", "delayed", "large"]
    assert "told to" in client.explain(failing).sentences[0]
    assert 0 < client.explain(later).facts["due_in_seconds"] <= 600
    assert "needs 1024 GiB; the best node (small) offers" in client.explain(large).sentences[1]


def test_one_failed_job_is_tried_again_by_its_id(cluster: Cluster, client: Client) -> None:
    """The other failure stays."""
    photos = photos_in(cluster.folder / "castle", 3)
    for name in ("0.jpg", "1.jpg"):
        (photos / name).rename(photos.parent / name)
        (photos / name).write_bytes(b"\xff\xd8\xff nothing")
    cluster.start_worker(import_roots=roots(photos))
    project = client.submit(photos, until="import")
    last_state(client, project)
    reports = {report["item"]: report["job_id"] for report in cluster.dead()}
    for name in ("0.jpg", "1.jpg"):
        (photos.parent / name).rename(photos / name)

    assert client.retry(reports["0.jpg"]) == project
    assert [report["item"] for report in cluster.dead()] == ["1.jpg"]
    assert last_state(client, project) == "done"
    assert client.project(project).failed_items("import") == {"1.jpg"}
    client.retry(project)
    assert last_state(client, project) == "done"
    assert client.project(project).failures() == []
    assert cluster.dead() == []
