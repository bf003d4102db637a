"""No check can make `tiepoint doctor` hang, and none that fails hides the others."""

import threading
from pathlib import Path

import pytest
import redis

from worker import doctor, machine_checks
from worker.findings import Finding, State, fine
from worker.settings import Settings


def examined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *checks: machine_checks.Check) -> list[Finding]:
    """Run checks of this machine instead of the real ones."""
    monkeypatch.setattr(machine_checks, "CHECKS", checks)
    monkeypatch.delenv("TIEPOINT_BROKER_URL", raising=False)
    return list(doctor.examine(Settings(lock_folder=tmp_path), patience_seconds=0.05))


def check_well(_settings: Settings) -> Finding:
    """Find nothing wrong."""
    return fine("well", "it is")


def test_a_check_that_hangs_is_a_problem_and_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A share that does not answer holds up nothing but its own line."""
    end = threading.Event()

    def check_hanging_share(settings: Settings) -> Finding:
        end.wait()
        return check_well(settings)

    found = examined(monkeypatch, tmp_path, check_hanging_share, check_well)
    end.set()

    assert [(one.name, one.state) for one in found] == [
        ("hanging share", State.PROBLEM),
        ("well", State.OK),
    ]


def test_a_check_that_is_refused_is_a_problem_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What may not be looked at is told like what is wrong."""

    def check_secret(_settings: Settings) -> Finding:
        raise redis.exceptions.NoPermissionError("no permissions to run the 'info' command")

    (found,) = examined(monkeypatch, tmp_path, check_secret)

    assert found.told == "cannot be checked: no permissions to run the 'info' command"
    assert "docs/operations.md" in found.cure


def test_a_mistake_of_ours_is_no_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is raised where it can be reported."""

    def check_broken(_settings: Settings) -> Finding:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        examined(monkeypatch, tmp_path, check_broken)
