"""Tests of artefacts: published once, checked on reading, whole after any stop."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.errors import CorruptArtefactError, MissingArtefactError, StoreError
from tasks.store import ArtefactKey, Store, artefact_key
from tests.unit.tasks.photo_builders import store_at

KEY = artefact_key("features.extract", 1, {"max": 5}, ["photo"])
SYSTEM_CALLS = ("link", "fsync", "rename", "replace", "unlink")


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it reaches the disk."""


class Stop:
    """Counts the calls that change the disk and lets none through from the n-th on."""

    def __init__(self, last_call: int) -> None:
        self.calls = 0
        self.last_call = last_call

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, or what a killed process does instead."""

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls > self.last_call:
                raise Killed
            return call(*arguments, **options)

        return counted


def publish(store: Store, key: ArtefactKey = KEY, value: int = 1) -> None:
    """Publish a small artefact."""
    store.publish(key, {"x": np.full(3, value)}, {"value": value})


def only_file(store: Store, pattern: str) -> Path:
    """Return the one file below a store that matches."""
    (path,) = store.root.rglob(pattern)
    return path


def test_a_published_artefact_is_there_and_reads_back(tmp_path: Path) -> None:
    """Publishing makes an artefact visible, whole."""
    store = store_at(tmp_path)
    before = store.has(KEY)
    publish(store)

    assert (before, store.has(KEY)) == (False, True)
    assert store.read(KEY).metadata == {"value": 1}


def test_the_first_publisher_wins(tmp_path: Path) -> None:
    """A second publication under the same key changes nothing."""
    store = store_at(tmp_path)
    publish(store, value=1)
    publish(store, value=2)

    assert store.read(KEY).metadata == {"value": 1}


def publish_and_stop(store: Store, monkeypatch: pytest.MonkeyPatch, last_call: int) -> bool:
    """Publish, let ``last_call`` calls reach the disk, then stop; tell whether that cut it short."""
    stop = Stop(last_call)
    with monkeypatch.context() as patched:
        for name in SYSTEM_CALLS:
            patched.setattr(os, name, stop.wrap(getattr(os, name)))
        try:
            publish(store)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("last_call", range(11))
def test_a_publication_stopped_anywhere_is_absent_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_call: int
) -> None:
    """Whatever a killed process left counts as absent or reads back, and can be made again."""
    store = store_at(tmp_path)
    publish_and_stop(store, monkeypatch, last_call)
    absent_or_whole = not store.has(KEY) or store.read(KEY).metadata == {"value": 1}
    publish(store)

    assert absent_or_whole
    assert store.read(KEY).metadata == {"value": 1}


def test_the_stops_reach_both_sides_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above: its first stop leaves nothing, its last cuts nothing short."""
    (tmp_path / "early").mkdir()
    (tmp_path / "late").mkdir()
    early, late = store_at(tmp_path / "early"), store_at(tmp_path / "late")

    assert publish_and_stop(early, monkeypatch, last_call=0)
    assert not early.has(KEY)
    assert not publish_and_stop(late, monkeypatch, last_call=10)
    assert late.has(KEY)


def test_an_artefact_without_sidecar_counts_as_absent_and_is_adopted(tmp_path: Path) -> None:
    """A process killed between the two names costs nothing but the work again."""
    store = store_at(tmp_path)
    publish(store, value=1)
    only_file(store, "*.sha256").unlink()
    absent = not store.has(KEY)
    publish(store, value=2)

    assert absent
    assert store.read(KEY).metadata == {"value": 1}


def test_a_sidecar_without_artefact_is_corrected(tmp_path: Path) -> None:
    """A sidecar that survived its artefact does not condemn the next one."""
    store = store_at(tmp_path)
    publish(store, value=1)
    only_file(store, "*.safetensors").unlink()
    absent = not store.has(KEY)
    publish(store, value=2)

    assert absent
    assert store.read(KEY).metadata == {"value": 2}


def test_one_flipped_bit_is_corrupt_until_discarded(tmp_path: Path) -> None:
    """A damaged artefact is not trusted, and is made again after it is discarded."""
    store = store_at(tmp_path)
    publish(store)
    path = only_file(store, "*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptArtefactError, match="does not match its checksum"):
        store.read(KEY)
    store.discard(KEY)
    absent = not store.has(KEY)
    publish(store)

    assert absent
    assert store.read(KEY).metadata == {"value": 1}


def test_reading_what_is_not_there_says_missing(tmp_path: Path) -> None:
    """Missing is told from corrupt, and from a store that is gone."""
    with pytest.raises(MissingArtefactError):
        store_at(tmp_path).read(KEY)


def test_a_store_that_is_gone_is_neither_empty_nor_created_again(tmp_path: Path) -> None:
    """An unmounted network folder must not look like an empty store."""
    store = Store(tmp_path / "unmounted")
    with pytest.raises(StoreError, match="is gone"):
        store.has(KEY)
    with pytest.raises(StoreError, match="is gone"):
        publish(store)

    assert not store.root.exists()


def test_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC becomes a plain sentence, and no half-written artefact stays."""
    store = store_at(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="the disk is full"):
        publish(store)

    assert not store.has(KEY)
    assert not list(store.root.rglob(".tmp-*"))


def test_without_hard_links_an_artefact_is_published_by_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT and some network folders know no links."""
    store = store_at(tmp_path)

    def unsupported(*_arguments: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    publish(store, value=1)
    publish(store, value=2)

    assert store.read(KEY).metadata == {"value": 1}


def test_the_sidecar_is_what_sha256sum_checks(tmp_path: Path) -> None:
    """The sidecar states digest and file name, two spaces apart."""
    store = store_at(tmp_path)
    publish(store)

    assert only_file(store, "*.sha256").read_text() == f"{store.sha256(KEY)}  {KEY.digest}.safetensors\n"


def test_a_folder_is_published_once_with_its_sums(tmp_path: Path) -> None:
    """The first one to fill a folder wins, and its files are summed."""
    store = store_at(tmp_path)
    store.publish_folder(KEY, lambda folder: _write(folder / "cameras.txt", "first"))
    store.publish_folder(KEY, lambda folder: _write(folder / "cameras.txt", "second"))
    folder = store.folder(KEY)

    assert folder is not None
    assert (folder / "cameras.txt").read_text() == "first"
    assert (folder / "SHA256SUMS").read_text().endswith("  cameras.txt\n")


def test_a_changed_file_makes_a_folder_corrupt(tmp_path: Path) -> None:
    """A folder is checked against its sums, and can be made again."""
    store = store_at(tmp_path)
    folder = store.publish_folder(KEY, lambda folder: _write(folder / "a", "1"))
    (folder / "a").write_text("2")
    with pytest.raises(CorruptArtefactError):
        store.folder(KEY)
    store.discard(KEY)

    assert store.folder(KEY) is None


def test_a_folder_whose_filling_fails_is_absent(tmp_path: Path) -> None:
    """Half-filled folders never get their name."""
    store = store_at(tmp_path)

    def fail(folder: Path) -> None:
        _write(folder / "a", "1")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.publish_folder(KEY, fail)

    assert store.folder(KEY) is None
    assert not list(store.root.rglob(".tmp-*"))


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def test_shapes_are_read_from_the_header_alone(tmp_path: Path) -> None:
    """Damage in the data does not matter, and is neither found nor discarded."""
    store = store_at(tmp_path)
    store.publish(KEY, {"x": np.zeros((3, 4)), "empty": np.zeros((0, 2), np.uint8)}, {})
    (path,) = store.root.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    assert store.shapes(KEY) == {"x": (3, 4), "empty": (0, 2)}
    assert store.has(KEY)


@pytest.mark.parametrize("cut_bytes", [1, 10_000])
def test_the_shapes_of_a_torn_artefact_are_corrupt(tmp_path: Path, cut_bytes: int) -> None:
    """The header says how long the file is."""
    store = store_at(tmp_path)
    publish(store)
    (path,) = store.root.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-cut_bytes])

    with pytest.raises(CorruptArtefactError, match="is damaged"):
        store.shapes(KEY)


@pytest.mark.parametrize("suffix", ["safetensors", "sha256"])
def test_an_artefact_without_one_of_its_files_has_no_shapes_and_is_not_intact(
    tmp_path: Path, suffix: str
) -> None:
    """It is not published."""
    store = store_at(tmp_path)
    publish(store)
    was_intact = store.is_intact(KEY)
    next(store.root.rglob(f"*.{suffix}")).unlink()

    assert was_intact
    assert not store.is_intact(KEY)
    with pytest.raises(MissingArtefactError):
        store.shapes(KEY)


@pytest.mark.parametrize("suffix", ["safetensors", "sha256"])
def test_an_artefact_is_intact_only_while_it_matches_its_checksum(tmp_path: Path, suffix: str) -> None:
    """One changed byte on either side."""
    store = store_at(tmp_path)
    publish(store)
    path = next(store.root.rglob(f"*.{suffix}"))
    path.write_bytes(b"?" + path.read_bytes()[1:])

    assert not store.is_intact(KEY)
