"""Tests of the command ``ramp`` up to its first run, and of its plot."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.worker.test_cli import invoke
from tests.unit.worker.test_ramp import ROW
from worker.ramp_plot import draw


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loads", "90,fast"], "--loads: 'fast' is no load; say percent from 10 to 400"),
        (["--loads", "9"], "--loads: '9' is no load"),
        (["--loads", "401"], "--loads: '401' is no load"),
        (["--loads", ""], "--loads: '' is no load"),
        (["--profiles", "right,2"], "--profiles: '2' is no profile; say `right`, or a factor of"),
        (["--margins", "fixed,lucky"], "--margins: 'lucky' is no margin; there are fixed, learned"),
        (["--pipelining", "0,1"], "--pipelining: '0,1' is not available: a worker takes a job when"),
    ],
)
def test_a_setting_that_cannot_be_read_ends_it(options: list[str], said: str, tmp_path: Path) -> None:
    """Before anything is made or measured."""
    result = invoke("ramp", "--out", str(tmp_path / "ramp"), *options)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "ramp").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """Neither is a folder made below one that is not there."""
    there = invoke("ramp", "--out", str(tmp_path))
    below = invoke("ramp", "--out", str(tmp_path / "no" / "ramp"))

    assert (there.exit_code, below.exit_code) == (2, 2)
    assert "is there already; name a new folder" in there.stderr
    assert "cannot be made: No such file or directory" in below.stderr


def test_a_ramp_is_drawn(tmp_path: Path) -> None:
    """Whatever it was cut down to."""
    rows = [ROW, replace(ROW, margin="fixed"), replace(ROW, profile="x2", load=110)]
    draw(rows, tmp_path / "ramp.png")
    draw(rows[:1], tmp_path / "one.png")

    assert (tmp_path / "ramp.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.png").stat().st_size > 10_000
