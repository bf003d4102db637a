"""A file of profiles is read back as it was written, and refused in one sentence where it makes no sense."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from governor.planning.profile import CellKey, Durations, LinearCost, ProfileSet
from worker.profile_file import ProfileFileError, read_profiles, write_profiles

KEY = CellKey(kind="matcher.run", batch_class=8, occupancy=1)
PROFILES = ProfileSet(
    cells={KEY: Durations(p50_ns=10, p95_ns=20, p99_ns=30)},
    linear={"track_builder.run": LinearCost(setup_ns=5, per_item_ns=7)},
    conditions={"tiepoint": "0.1.0"},
    hardware={"cpu_cores": "8"},
)
CELL = {"kind": "a", "batch_class": 8, "occupancy": 0, "samples": 100, "p50_ns": 1, "p95_ns": 2, "p99_ns": 3}


def written(folder: Path, **cell: Any) -> Path:
    """Write a file with one cell that differs from a good one."""
    path = folder / "p.json"
    path.write_text(json.dumps({"schema": 1, "conditions": {}, "cells": [{**CELL, **cell}]}))
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """With the same identity."""
    write_profiles(tmp_path / "p.json", PROFILES, {KEY: 120})
    read = read_profiles(tmp_path / "p.json")

    assert read == PROFILES
    assert read.identity("matcher.run") == PROFILES.identity("matcher.run")
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_a_file_that_is_there_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up meanwhile costs the new profiles, not the old ones, and leaves nothing behind."""
    path = tmp_path / "p.json"
    write_profiles(path, PROFILES, {KEY: 120})
    before = path.read_bytes()

    def full_disk(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ProfileFileError, match=r"p\.json cannot be written: No space left"):
        write_profiles(path, ProfileSet(cells={}), {})

    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["p.json"]


def test_whoever_may_read_other_files_may_read_profiles(tmp_path: Path) -> None:
    """A worker may run as another user than who calibrated."""
    write_profiles(tmp_path / "p.json", PROFILES, {KEY: 120})
    (tmp_path / "other").touch()

    assert (tmp_path / "p.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_reference_set_can_be_read() -> None:
    """It came with this version."""
    profiles = read_profiles(None)

    assert "features.extract.rootsift" in {key.kind for key in profiles.cells}
    assert all(durations.is_valid() for durations in profiles.cells.values())


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        ({"samples": 99}, "samples"),
        ({"batch_class": 3}, "no power of two"),
        ({"batch_class": 128}, "batch_class"),
        ({"occupancy": 8}, "occupancy"),
        ({"p50_ns": 3}, "p50_ns <= p95_ns <= p99_ns"),
        ({"p99_ns": 3.5}, "p99_ns"),
        ({"p50_ns": 0}, "p50_ns"),
        ({"variant": "tpu"}, "variant"),
        ({"mood": 1}, "mood"),
    ],
)
def test_a_cell_that_makes_no_sense_is_refused(tmp_path: Path, cell: dict[str, Any], cause: str) -> None:
    """The sentence names the file and the field."""
    path = written(tmp_path, **cell)

    with pytest.raises(ProfileFileError, match=rf"p\.json holds no profiles.*{cause}"):
        read_profiles(path)


@pytest.mark.parametrize("cell", [{"samples": 100}, {"batch_class": 64}, {"occupancy": 7}, {"p50_ns": 2}])
def test_a_cell_at_the_limits_is_read(tmp_path: Path, cell: dict[str, Any]) -> None:
    """Just this side of what is refused."""
    assert len(read_profiles(written(tmp_path, **cell)).cells) == 1


def test_a_cell_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Nobody could say which of them holds."""
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"schema": 1, "conditions": {}, "cells": [CELL, CELL]}))

    with pytest.raises(ProfileFileError, match="holds a cell twice"):
        read_profiles(path)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"schema": 2, "conditions": {}, "cells": []}', b"\xff\x00"]
)
def test_what_is_no_file_of_profiles_is_refused(tmp_path: Path, text: bytes) -> None:
    """One of a later version, too."""
    (tmp_path / "p.json").write_bytes(text)

    with pytest.raises(ProfileFileError, match=r"p\.json holds no profiles"):
        read_profiles(tmp_path / "p.json")


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    """It might be anything, a photo say."""
    (tmp_path / "p.json").write_bytes(b" " * (4 * 2**20 + 1))

    with pytest.raises(ProfileFileError, match="more than 4 MiB"):
        read_profiles(tmp_path / "p.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Reading and writing."""
    with pytest.raises(ProfileFileError, match=r"nowhere/p\.json cannot be read"):
        read_profiles(tmp_path / "nowhere" / "p.json")
    with pytest.raises(ProfileFileError, match=r"nowhere/p\.json cannot be written"):
        write_profiles(tmp_path / "nowhere" / "p.json", PROFILES, {KEY: 120})
