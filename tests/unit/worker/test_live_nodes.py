"""The registry tells which folders a node sees; who asks does not trust it to be complete."""

import json
from pathlib import Path

import pytest

from tasks.store import Store
from worker.live_nodes import (
    LiveNode,
    describe_folders,
    on_other_stores,
    read_node,
    unseen_by_all,
    unseen_by_some,
)
from worker.settings import Settings

NAS = LiveNode(name="a", store="/store", store_id="s", import_roots=("/nas/photos",))
DISK = LiveNode(name="b", store="/store", store_id="s", import_roots=("/disk",))


def settings_of(folder: Path) -> Settings:
    """Return the settings of a node with a store and an import root."""
    return Settings(store=folder / "store", import_roots=(folder / "photos",), name="a")


def test_what_a_node_tells_is_what_a_client_reads(tmp_path: Path) -> None:
    """Store, its identity, import roots."""
    (tmp_path / "store").mkdir()
    node = read_node("a", describe_folders(settings_of(tmp_path)))

    assert node.store_id == Store(tmp_path / "store").identity()
    assert node.may_import(str(tmp_path / "photos" / "x.jpg"))
    assert node.may_import(str(tmp_path / "store" / "x.jpg"))
    assert not node.may_import(str(tmp_path / "x.jpg"))


def test_a_node_whose_store_is_away_tells_none(tmp_path: Path) -> None:
    """It starts all the same, and no client counts on it."""
    told = describe_folders(settings_of(tmp_path))

    assert told["store_id"] == ""
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("roots", ["", "{", "5", "null", '{"a": 1}'])
def test_roots_that_cannot_be_read_are_none(roots: str) -> None:
    """A node of another version is no error of the client."""
    node = read_node("a", {"import_roots": roots, "budget_memory_bytes": "lots"})

    assert (node.import_roots, node.budget_memory_bytes) == ((), 0)


def test_numbers_and_waits_are_read() -> None:
    """As the node's entry has them."""
    node = read_node(
        "a", {"budget_cpu_threads": "4", "waits_for": "WAIT", "import_roots": json.dumps(["/p"])}
    )

    assert (node.budget_cpu_threads, node.waits_for, node.import_roots) == (4, "WAIT", ("/p",))


def test_a_source_counts_as_unseen_when_no_node_may_read_it() -> None:
    """One of many is enough to see it."""
    sources = ["/nas/photos/1.jpg", "/disk/2.jpg", "/home/3.jpg", "in-store/4.jpg"]

    assert unseen_by_all([NAS, DISK], sources) == ["/home/3.jpg"]
    assert unseen_by_some([NAS, DISK], ["/nas/photos/1.jpg", "in-store/4.jpg"]) == [DISK]


def test_another_identity_is_another_store() -> None:
    """The same path on two machines may be two disks."""
    assert on_other_stores([NAS, DISK], "s") == []
    assert on_other_stores([NAS], "t") == [NAS]


@pytest.mark.parametrize(
    ("waits_for", "sentence"),
    [
        ("the store: it is gone", "waits for the store: it is gone"),
        ("WAIT CPU_PSI: 36 %", "waits: WAIT CPU_PSI: 36 %"),
    ],
)
def test_what_a_node_waits_for_reads_as_a_sentence(waits_for: str, sentence: str) -> None:
    """A governor's decision begins with its verdict."""
    assert read_node("a", {"waits_for": waits_for}).waiting == sentence
