"""A stock client that knows nothing of Tiepoint runs a project that is in the store."""

from pathlib import Path

from tasks.catalog import STAGES
from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Store
from tests.conftest import PhotoSet
from tests.integration.conftest import Cluster, wait_until
from worker import keys


def test_pipeline_expand_alone_runs_a_project(cluster: Cluster, photos: PhotoSet, tmp_path: Path) -> None:
    """No headers, one argument: the project goes through to its model."""
    found = find_photos(photos("kermit"))
    store = Store(tmp_path / "store")
    store.create()
    project = store.project("main")
    project.create(ProjectParameters(), found)
    cluster.send("pipeline.expand", kwargs={"project": "main"})
    roots = f'["{photos("kermit")}"]'
    worker = cluster.start_worker(import_roots=roots)
    name = keys.project("main")
    wait_until(lambda: cluster.server.hget(name, "state") in {b"done", b"failed"}, "it is over")

    assert cluster.server.hget(name, "state") == b"done", worker.log
    # So few photos are all matched with each other: no index is needed.
    passed = {stage for stage in STAGES if cluster.server.hget(name, f"{stage}:done")}
    assert passed == set(STAGES) - {"index"}
    assert project.failures() == []
