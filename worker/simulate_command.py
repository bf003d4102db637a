"""Holds the command ``simulate``: the planner under virtual time, as tables or as one run.

Does not cover the simulation (:mod:`governor.simulation`), nor how rows are
said and drawn (:mod:`worker.simulation_views`, :mod:`worker.simulation_plot`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from governor.simulation import tables
from governor.simulation.simulator import PlannedSimulation
from worker.command_endings import errors, plain_errors, say
from worker.command_options import JsonOption
from worker.scaled_profiles import permille_of
from worker.settings import WrongSettingError
from worker.simulation_plot import check_format, draw
from worker.simulation_views import Row, show_figures, show_rows, to_dict


class TableName(StrEnum):
    """Which table is made."""

    EDGE = "edge"
    PLAN_SIZE = "plan-size"
    CARRY_OVER = "carry-over"


_CELLS: dict[TableName, tuple[Callable[..., Row], Sequence[tuple[Any, ...]]]] = {
    TableName.EDGE: (tables.edge_row, tables.EDGE_CELLS),
    TableName.PLAN_SIZE: (tables.plan_size_row, tables.PLAN_SIZE_CELLS),
    TableName.CARRY_OVER: (tables.carry_over_row, tables.CARRY_OVER_CELLS),
}

TableOption = Annotated[
    TableName | None,
    typer.Option(help="A whole table: around full load, of plan sizes, of what a restart keeps."),
]
PlotOption = Annotated[Path | None, typer.Option(help="Draw the table into this file (.png, .svg, .pdf).")]
LoadOption = Annotated[int, typer.Option(min=10, max=400, help="One run: load in percent of one slot.")]
ProfileOption = Annotated[
    str, typer.Option(help="One run: what the planner is told: `right`, or e.g. `x2` for twice the truth.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, max=2**64 - 1, help="One run: seed of arrivals and durations.")
]
MarginOption = Annotated[int, typer.Option(min=100, max=300, help="One run: margin of plans in percent.")]
LearnOption = Annotated[bool, typer.Option(help="One run: learn the factor of plans.")]
MinFactorOption = Annotated[int, typer.Option(min=10, max=100, help="One run: smallest factor in percent.")]


def simulate(
    table: TableOption = None,
    plot: PlotOption = None,
    load: LoadOption = 110,
    profile: ProfileOption = "right",
    seed: SeedOption = 1,
    margin: MarginOption = tables.START_PERCENT,
    learn: LearnOption = True,
    min_factor: MinFactorOption = 50,
    as_json: JsonOption = False,
) -> None:
    """Simulate 20 s of three periodic streams on one slot, as this version plans them."""
    with plain_errors():
        if table is not None:
            _table(table, plot, as_json=as_json)
            return
        if plot is not None:
            raise WrongSettingError("--plot draws a table: name it with --table")
        permille = permille_of(profile, "--profile")
    if learn:
        planner = tables.learning_planner(permille, margin_percent=margin, min_factor_percent=min_factor)
    else:
        planner = tables.fixed_planner(permille, margin)
    figures = PlannedSimulation(load, seed, planner).run()
    learner = planner.learner
    factors = {kind: learner.factor_percent(kind) for kind in learner.residuals} if learner else {}
    if as_json:
        typer.echo(json.dumps({**asdict(figures), "factors_percent": factors}))
    else:
        show_figures(Console(), figures, factors)


def _table(name: TableName, plot: Path | None, *, as_json: bool) -> None:
    if plot is not None:
        check_format(plot)
    make, cells = _CELLS[name]
    working = track(cells, description="simulating", console=errors, disable=not errors.is_terminal)
    rows = [make(*cell) for cell in working]
    if as_json:
        typer.echo(json.dumps({"rows": [to_dict(row) for row in rows]}))
    else:
        show_rows(Console(), rows)
    if plot is not None:
        _draw(rows, plot)


def _draw(rows: Sequence[Row], plot: Path) -> None:
    try:
        draw(rows, plot)
    except OSError as error:
        raise WrongSettingError(f"--plot: {plot} cannot be written: {error.strerror}") from error
    say(f"the plot is in {plot}")
