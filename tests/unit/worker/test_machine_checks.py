"""What `tiepoint doctor` says of this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.store import Store
from tasks.store.identity import FILE_NAME
from worker import machine_checks
from worker.findings import Finding, State, fine
from worker.fingerprint import fingerprint_of
from worker.node import Node
from worker.settings import Settings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["tasks.py", "governor.py", "worker"])
def test_what_hides_our_modules_is_named(here: Path, name: str) -> None:
    """A file or a folder of one of their names; others hide nothing."""
    (here / "task.py").touch()
    before = machine_checks.check_import_names(Settings())
    (here / name).mkdir()

    found = machine_checks.check_import_names(Settings())

    assert (before.state, found.state) == (State.OK, State.WARNING)
    assert name in found.told
    assert "use `tiepoint worker`" in found.cure


def test_a_store_that_is_named_and_gone_is_a_problem(tmp_path: Path) -> None:
    """None that is named is none to look at."""
    found = machine_checks.check_store(Settings(store=tmp_path / "gone"))

    assert found.state is State.PROBLEM
    assert str(tmp_path / "gone") in found.told
    assert machine_checks.check_store(Settings()).state is State.OK


def test_looking_at_a_store_leaves_nothing_in_it(tmp_path: Path) -> None:
    """Neither the file that was written nor an identity."""
    found = machine_checks.check_store(Settings(store=tmp_path))

    assert found.state is State.OK
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_identity_is_told(tmp_path: Path) -> None:
    """As whoever works on the store would meet it."""
    Store(tmp_path).identity()
    (tmp_path / FILE_NAME).write_text("{")

    found = machine_checks.check_store(Settings(store=tmp_path))

    assert found.state is State.PROBLEM
    assert "is damaged" in found.told


@pytest.mark.parametrize(("missing_bytes", "state"), [(0, State.OK), (1, State.WARNING)])
def test_little_space_is_told(tmp_path: Path, missing_bytes: int, state: State) -> None:
    """As much as the bound is enough, a byte less is not."""
    left_bytes = machine_checks.LITTLE_SPACE_BYTES - missing_bytes

    assert machine_checks.of_space(tmp_path, left_bytes).state is state
    assert machine_checks.of_space(tmp_path, None).state is State.OK


def test_a_lock_folder_that_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    """Cause and cure, each in its place."""
    (tmp_path / "file").touch()

    found = machine_checks.check_lock_folder(Settings(lock_folder=tmp_path / "file"))

    assert found.state is State.PROBLEM
    assert found.told.startswith("cannot tell which workers run on this machine")
    assert "TIEPOINT_LOCK_FOLDER" in found.cure


def test_a_machine_that_is_fit_says_what_it_offers(tmp_path: Path) -> None:
    """In the chosen profile."""
    settings = Settings(lock_folder=tmp_path, profile="dedicated")

    assert "threads to jobs (dedicated)" in machine_checks.check_machine(settings).told


def planned(tmp_path: Path, **profiles: Any) -> Finding:
    """Look at planning with such a file of profiles."""
    path = tmp_path / "p.json"
    durations = {"p50_ns": 1, "p95_ns": 2, "p99_ns": 3}
    cell = {"kind": "match", "batch_class": 8, "occupancy": 0, "samples": 100, **durations}
    path.write_text(json.dumps({"schema": 1, "conditions": {}, "cells": [cell], **profiles}))
    settings = Settings.checked(planning={"profiles": str(path), "margin_learning": {}})
    return machine_checks.check_planning(settings)


def test_planning_that_is_off_is_no_concern() -> None:
    """Off is the default."""
    assert machine_checks.check_planning(Settings()) == fine("planning", "off")


def test_profiles_of_this_machine_are_fine(tmp_path: Path) -> None:
    """What is learned, and within which bounds, is told."""
    found = planned(tmp_path, hardware=fingerprint_of(Node(Settings())))

    assert found.state is State.OK
    assert "between 50 and 1000 %" in found.told
    assert "after 48 batches" in found.told


def test_profiles_of_other_hardware_are_a_warning_with_both(tmp_path: Path) -> None:
    """One that says nothing of its hardware was measured elsewhere, too."""
    here = fingerprint_of(Node(Settings()))
    other = planned(tmp_path, hardware={**here, "architecture": "pdp11"})
    unknown = planned(tmp_path)

    assert other.state is unknown.state is State.WARNING
    assert f"(architecture pdp11, here {here['architecture']})" in other.told
    assert f"architecture unknown, here {here['architecture']}" in unknown.told
    assert "tiepoint calibrate" in other.cure


def test_a_kind_of_which_too_little_was_measured_is_a_warning(tmp_path: Path) -> None:
    """Its plans have 40 points more."""
    linear = {"track": {"setup_ns": 1, "per_item_ns": 1}}
    found = planned(tmp_path, linear=linear, hardware=fingerprint_of(Node(Settings())))

    assert found.state is State.WARNING
    assert "too little was measured of track" in found.told


def test_profiles_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    """No worker would start with them."""
    found = planned(tmp_path, cells=[{"kind": "match"}])

    assert found.state is State.PROBLEM
