"""`tiepoint simulate` says the simulation's figures for people, for programs and as a picture."""

import json
from pathlib import Path

import pytest

from governor.simulation import tables
from tests.unit.worker.test_cli import invoke
from worker.scaled_profiles import permille_of
from worker.simulation_plot import draw
from worker.simulation_views import Row


def test_one_run_as_json_has_its_figures_and_the_factors() -> None:
    """A profile of twice the truth is found out."""
    result = invoke("simulate", "--profile", "x2", "--json")
    told = json.loads(result.stdout)

    row = tables.plan_size_row("x2", 50).figures
    assert (told["vetoes"], told["dispatched"]) == (row.vetoes, row.dispatched) == (6_691, 1_537)
    assert 50 <= told["factors_percent"]["detector"] <= 59


def test_one_run_with_a_fixed_margin_learns_no_factor() -> None:
    """The row of the table whose margin is fixed."""
    told = json.loads(invoke("simulate", "--no-learn", "--json").stdout)

    assert (told["vetoes"], told["dispatched"], told["factors_percent"]) == (10, 2_046, {})


def test_a_table_as_json_is_a_list_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut to one row here: the whole one is a minute's work."""
    made = tables.EDGE_CELLS.index(("right", 90))
    monkeypatch.setattr("worker.simulate_command.track", lambda cells, **_: [cells[made]])
    result = invoke("simulate", "--table", "edge", "--json")

    assert json.loads(result.stdout) == {
        "rows": [
            {
                "profile": "right",
                "load": 90,
                "fifo": [0, 4],
                "fixed_110": [0, 4],
                "fixed_100": [0, 4],
                "learned": [0, 4],
            }
        ]
    }


@pytest.mark.parametrize(("told", "permille"), [("right", 1000), ("x2", 2000), ("x0.7", 700), ("x0.05", 50)])
def test_a_profile_is_a_multiple_of_the_truth(told: str, permille: int) -> None:
    """In permille."""
    assert permille_of(told, "--profile") == permille


@pytest.mark.parametrize("told", ["x0.049", "x10.001", "2", "x-1", "x1e3", "wrong", ""])
def test_a_profile_that_cannot_be_read_is_refused(told: str) -> None:
    """Just beyond the ends, too."""
    result = invoke("simulate", "--profile", told)

    assert result.exit_code == 2
    assert "--profile" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("--plot", "a.png"), "name it with --table"),
        (("--table", "edge", "--plot", "a.bmp"), "a file that ends with"),
        (("--table", "edge", "--plot", "nowhere/a.png"), "there is no folder nowhere"),
    ],
)
def test_a_plot_that_cannot_be_made_is_refused_before_anything_runs(
    arguments: tuple[str, ...], cause: str
) -> None:
    """Not after a minute."""
    result = invoke("simulate", *arguments)

    assert result.exit_code == 2
    assert cause in result.stderr


@pytest.mark.parametrize(
    "row",
    [
        tables.EdgeRow(
            profile="x2", load=95, fifo=(0, 1), fixed_110=(0, 1), fixed_100=(0, 1), learned=(0, 1)
        ),
        tables.CarryOverRow(seeds=(1, 2), carried=(1, 2), right=(3, 4)),
    ],
)
def test_tables_are_drawn(row: Row, tmp_path: Path) -> None:
    """As a picture of the asked kind."""
    draw([row], tmp_path / "a.png")

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
