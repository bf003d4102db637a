"""A store that is full, read-only, gone or another one costs time and no job: the node waits and says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tasks.store import Store
from tests.integration.conftest import Cluster, Worker, wait_until
from tests.integration.publishing_kinds import KIND_NAME, content_of, key_of
from tests.small_disk import SmallDisk, hanging_disk, mount_again, mounted, small_disk, unmount
from worker import keys
from worker.store_wait import WAITS_FOR_STORE

DISK_BYTES = 16 * 2**20
JOBS = 20


def start_worker(cluster: Cluster, store: Path, name: str = "one") -> Worker:
    """Start a worker that publishes in this store."""
    modules = '["tests.integration.publishing_kinds"]'
    return cluster.start_worker(name, store=store, kind_modules=modules, cpus=2)


def submit(cluster: Cluster, sleep_seconds: float = 0.05) -> None:
    """Send the jobs, one artefact of half a MiB each."""
    for number in range(JOBS):
        cluster.send(KIND_NAME, kwargs={"number": number, "sleep_seconds": sleep_seconds})


def waits_for(cluster: Cluster, name: str = "one") -> str:
    """Return what a node says it waits for."""
    return str(cast("bytes", cluster.server.hget(keys.node(name), "waits_for") or b""), "utf-8")


def wait_for_the_pause(cluster: Cluster, cause: str, name: str = "one") -> None:
    """Wait until a node says that it waits for its store, and why."""

    def says() -> bool:
        told = waits_for(cluster, name)
        return told.startswith(WAITS_FOR_STORE) and cause in told

    wait_until(says, f"{name} waits for its store: {cause}")


def lease_end_ms(cluster: Cluster) -> float:
    """Return when the one lease ends, in server milliseconds."""
    (lease,) = cast("list[bytes]", cluster.server.zrange(keys.LEASES, 0, -1))
    return float(cluster.server.zscore(keys.LEASES, lease) or 0)


def wait_for_a_renewal(cluster: Cluster) -> None:
    """Wait until the one lease ends later than it does now."""
    end_ms = lease_end_ms(cluster)
    wait_until(lambda: lease_end_ms(cluster) > end_ms, "the lease is renewed")


def published(store: Store) -> int:
    """Return how many jobs have published."""
    return sum(store.has(key_of(number)) for number in range(JOBS))


def wait_for_some(store: Store) -> None:
    """Wait until work is under way."""
    wait_until(lambda: published(store) >= 2, "two artefacts are there")


def wait_for_the_end(cluster: Cluster, store: Store) -> None:
    """Wait until everything is published and settled."""
    wait_until(lambda: published(store) == JOBS, "all artefacts are there")
    wait_until(lambda: cluster.inflight() == 0, "everything is settled")


def check_nothing_is_lost(cluster: Cluster, store: Store) -> None:
    """Check that each job has published what it would have undisturbed, none failed, and nothing is left."""
    for number in range(JOBS):
        assert np.array_equal(store.read(key_of(number)).arrays["content"], content_of(number))
    assert cluster.dead() == []
    assert (cluster.server.llen(KIND_NAME), cluster.server.zcard(keys.DELAYED)) == (0, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Return a disk of 16 MiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


def test_a_full_disk_holds_work_up_until_there_is_room(cluster: Cluster, disk: SmallDisk) -> None:
    """Half-written files are gone, no attempt is counted, and one line of the log says why."""
    store = Store(disk.folder)
    worker = start_worker(cluster, disk.folder)
    submit(cluster)
    wait_for_some(store)
    disk.fill()
    wait_for_the_pause(cluster, "the disk is full (")
    held_up = cluster.server.zcard(keys.DELAYED) + cluster.server.llen(KIND_NAME) + cluster.inflight()

    assert (held_up > 0, cluster.dead()) == (True, [])
    assert published(store) < JOBS
    disk.free()
    wait_for_the_end(cluster, store)
    check_nothing_is_lost(cluster, store)
    assert [path.name for path in store.root.rglob(".tmp-*")] == []
    assert worker.log.count("event=store_is_back") >= 1
    assert "job_parked" not in worker.log  # That is what counts an attempt.


def test_a_read_only_store_holds_work_up_until_it_can_be_written(cluster: Cluster, disk: SmallDisk) -> None:
    """As a disk with errors, that the kernel mounts anew."""
    store = Store(disk.folder)
    start_worker(cluster, disk.folder)
    submit(cluster)
    wait_for_some(store)
    disk.make_read_only()
    wait_for_the_pause(cluster, "the disk is read-only")

    assert (cluster.dead(), published(store) < JOBS) == ([], True)
    disk.make_writable()
    wait_for_the_end(cluster, store)
    check_nothing_is_lost(cluster, store)


def test_a_share_that_vanishes_and_comes_back_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """What it leaves is an empty folder, which is no empty store: nothing is written there."""
    share, place = tmp_path / "share", tmp_path / "mounted"
    share.mkdir()
    with mounted(share, place):
        store = Store(place)
        start_worker(cluster, place)
        submit(cluster)
        wait_for_some(store)
        unmount(place)
        wait_for_the_pause(cluster, "it has lost its store.json")

        assert (cluster.dead(), list(place.iterdir())) == ([], [])
        mount_again(share, place)
        wait_for_the_end(cluster, store)
        check_nothing_is_lost(cluster, store)


def test_another_store_in_its_place_is_not_written_to(cluster: Cluster, tmp_path: Path) -> None:
    """Two shares of one NAS are easily confused."""
    share, other, place = tmp_path / "share", tmp_path / "other", tmp_path / "mounted"
    share.mkdir()
    Store(other).create()
    Store(other).identity()
    with mounted(share, place):
        store = Store(place)
        start_worker(cluster, place)
        submit(cluster)
        wait_for_some(store)
        unmount(place)
        mount_again(other, place)
        wait_for_the_pause(cluster, "is now another project store")

        assert [path.name for path in other.iterdir()] == ["store.json"]
        unmount(place)
        mount_again(share, place)
        wait_for_the_end(cluster, store)
        check_nothing_is_lost(cluster, store)


def test_a_node_whose_store_is_away_leaves_the_work_to_the_others(cluster: Cluster, tmp_path: Path) -> None:
    """The share is there; only one machine has lost it."""
    share, place = tmp_path / "share", tmp_path / "mounted"
    share.mkdir()
    with mounted(share, place):
        start_worker(cluster, place, "lost")
        unmount(place)
        submit(cluster)
        wait_for_the_pause(cluster, "it has lost its store.json", "lost")
        start_worker(cluster, share, "well")
        wait_for_the_end(cluster, Store(share))
        check_nothing_is_lost(cluster, Store(share))

        assert waits_for(cluster, "lost").startswith(WAITS_FOR_STORE)


def test_a_store_that_hangs_holds_up_jobs_and_not_the_nodes_lease(cluster: Cluster, tmp_path: Path) -> None:
    """A share whose server has gone answers nothing, not even with an error."""
    with hanging_disk(tmp_path / "disk", tmp_path / "image", 4 * DISK_BYTES) as disk:
        store = Store(disk.folder)
        worker = start_worker(cluster, disk.folder)
        submit(cluster)
        wait_for_some(store)
        disk.hang()
        wait_until(lambda: cluster.inflight() > 0, "jobs hang")
        for _ in range(6):  # Each a third of the lease.
            wait_for_a_renewal(cluster)
        held = cluster.inflight()

        assert (held > 0, "lease_had_ended" in worker.log, cluster.dead()) == (True, False, [])
        disk.answer()
        wait_for_the_end(cluster, store)
        check_nothing_is_lost(cluster, store)
