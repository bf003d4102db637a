"""A fault of the whole store is told from one of a single file: by writing to it, by what it calls itself."""

import errno
import json
import os
from pathlib import Path

import pytest

from tasks.errors import StoreError
from tasks.store import Store
from tasks.store.identity import SameStore
from tasks.store.probe import fault_behind, find_fault
from tasks.store.publication import plain_store_errors


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store."""
    store = Store(tmp_path / "store")
    store.create()
    return store


def an_error(code: int) -> StoreError:
    """Return what a job tells of an error of the system."""
    with pytest.raises(StoreError) as told, plain_store_errors(Path("x")):
        raise OSError(code, os.strerror(code))
    return told.value


def failing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let nothing be written durably."""

    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)


def test_a_store_that_is_well_has_no_fault_and_keeps_nothing_of_the_probe(store: Store) -> None:
    """However often it is asked."""
    identity = store.identity()

    assert [find_fault(store.root, identity) for _ in range(2)] == [None, None]
    assert [path.name for path in store.root.iterdir()] == ["store.json"]


@pytest.mark.parametrize(
    ("code", "cause", "cure"),
    [
        (errno.ENOSPC, "the disk is full", "free space on its disk"),
        (errno.EDQUOT, "the disk quota is used up", "free space, or raise the quota"),
        (errno.EROFS, "the disk is read-only", "mount it so that it can be written"),
        (errno.EACCES, "access is denied", "let this user write there"),
        (errno.ESTALE, "the network folder has gone away", "mount its disk or share again"),
        (errno.EIO, "the disk reports an input/output error", "mount its disk or share again"),
    ],
)
def test_a_store_that_cannot_be_written_says_why_and_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int, cause: str, cure: str
) -> None:
    """And the probe leaves nothing."""
    failing(monkeypatch, code)
    fault = find_fault(store.root, "")

    assert fault is not None
    assert (cause in fault.cause, fault.cure) == (True, cure)
    assert list(store.root.iterdir()) == []


def test_a_full_disk_tells_its_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the system knows it."""
    failing(monkeypatch, errno.ENOSPC)
    fault = find_fault(store.root, "")

    assert fault is not None
    assert fault.total_bytes is not None
    assert 0 <= (fault.free_bytes or 0) <= fault.total_bytes


def test_a_store_that_is_gone_is_a_fault(store: Store) -> None:
    """With and without knowing what it called itself."""
    identity = store.identity()
    store.root.rename(store.root.with_name("away"))
    faults = [find_fault(store.root, store_id) for store_id in ("", identity)]

    assert ["is gone" in fault.cause for fault in faults if fault] == [True, True]


def test_an_empty_folder_is_not_the_store_that_was_mounted_there(store: Store) -> None:
    """It can be written, and must not be."""
    identity = store.identity()
    store.root.rename(store.root.with_name("away"))
    store.root.mkdir()
    fault = find_fault(store.root, identity)

    assert fault is not None
    assert "it has lost its store.json" in fault.cause


def test_another_store_is_not_the_same(store: Store) -> None:
    """Two shares of one NAS are easily confused."""
    fault = find_fault(store.root, f"not-{store.identity()}")

    assert fault is not None
    assert fault.cure == "mount the right one, or start the worker again if this is the right one"
    assert "is now another project store" in fault.cause


def test_an_error_of_one_file_is_not_the_stores(store: Store) -> None:
    """Everything else can be read and written."""
    assert fault_behind(an_error(errno.EIO), store.root, store.identity()) is None


def test_a_full_disk_is_believed_though_a_probe_fits(store: Store) -> None:
    """There may be room for that, and none for an artefact."""
    fault = fault_behind(an_error(errno.ENOSPC), store.root, store.identity())

    assert fault is not None
    assert fault.free_bytes is not None


def test_a_store_that_was_swapped_is_noticed_whatever_was_seen_before(store: Store) -> None:
    """What was read once is believed only as long as its file is the same."""
    same = SameStore(store.root, store.identity())
    same.check()
    (store.root / "store.json").unlink()
    (store.root / "store.json").write_text(json.dumps({"store": "another"}))

    with pytest.raises(StoreError, match="another project store"):
        same.check()


def test_nothing_is_made_in_a_folder_that_is_not_the_expected_store(store: Store) -> None:
    """A share that goes while a job runs leaves an empty folder."""
    store.expect(store.identity())
    store.root.rename(store.root.with_name("away"))
    store.root.mkdir()

    with pytest.raises(StoreError, match="it has lost its"):
        store.project("p").write_result({})
    assert list(store.root.iterdir()) == []
