"""Says a simulation's rows as plain values for programs, and as tables for people.

Does not compute them (:mod:`governor.simulation.tables`), nor draw them
(:mod:`worker.simulation_plot`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from governor.simulation.simulator import Figures
from governor.simulation.tables import CarryOverRow, EdgeRow, Pair, PlanSizeRow

Row = EdgeRow | PlanSizeRow | CarryOverRow
UNCOVERED = "uncovered windows in permille, detector / worse of the other two"


def to_dict(row: Row) -> dict[str, Any]:
    """Return a row's fields; the figures of a run beside its setting."""
    told = asdict(row)
    figures: dict[str, int] = told.pop("figures", {})
    return {**told, **figures}


def show_rows(console: Console, rows: Sequence[Row]) -> None:
    """Print one table; all rows are of one kind."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    cells = [_cells(row) for row in rows]
    for name in cells[0]:
        table.add_column(name, justify="left" if name == "profile" else "right")
    for texts in cells:
        table.add_row(*texts.values())
    console.print(_title(rows[0]), highlight=False, soft_wrap=True)
    console.print(table)


def show_figures(console: Console, figures: Figures, factors_percent: dict[str, int]) -> None:
    """Print what has come of one run, one line each."""
    for name, value in asdict(figures).items():
        console.print(f"{name.replace('_', ' ')}: {value}", highlight=False)
    for stream, percent in factors_percent.items():
        console.print(f"learned factor of {stream}: {percent} %", highlight=False)


def _title(row: Row) -> str:
    if isinstance(row, EdgeRow):
        return UNCOVERED
    if isinstance(row, PlanSizeRow):
        return "plans of different sizes at 110 % load: uncovered windows in permille, late detections"
    return f"a second run after a restart, profile x2, 110 % load: {UNCOVERED}"


def _cells(row: Row) -> dict[str, str]:
    if isinstance(row, EdgeRow):
        return {
            "profile": row.profile,
            "load": str(row.load),
            "FIFO": _text(row.fifo),
            "fixed 110 %": _text(row.fixed_110),
            "fixed 100 %": _text(row.fixed_100),
            "learned": _text(row.learned),
        }
    if isinstance(row, PlanSizeRow):
        minimum = row.min_factor_percent
        figures = row.figures
        return {
            "profile": row.profile,
            "min factor": "fixed" if minimum is None else f"{minimum} %",
            "vetoes": str(figures.vetoes),
            "dispatched": str(figures.dispatched),
            "detector": str(figures.detector_permille),
            "worst high": str(figures.worst_high_permille),
            "late": str(figures.detector_deadline_misses),
        }
    first, second = row.seeds
    return {
        "seeds": f"{first}, {second}",
        "carried over": _text(row.carried),
        "right profile": _text(row.right),
    }


def _text(pair: Pair) -> str:
    return f"{pair[0]} / {pair[1]}"
