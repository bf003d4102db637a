"""Draws a ramp: uncovered windows by load, a column for each profile, a line for each margin."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.ramp import Row

_LINES = {"fixed": ("#0072b2", "--", "o"), "learned": ("#d55e00", "-", "D")}
"""Colour (of Okabe and Ito's palette, told apart by the colour-blind), line, marker."""
_STREAMS = {"detector": "detector (protected)", "worst_high": "worse of pose and depth (high)"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the rows of a ramp.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - it takes a second that no other command needs

    profiles = list(dict.fromkeys(row.profile for row in rows))
    figure = Figure(layout="constrained", figsize=(3.2 * len(profiles) + 1, 6))
    axes = figure.subplots(2, len(profiles), sharex=True, sharey="row", squeeze=False)
    for column, profile in enumerate(profiles):
        own = [row for row in rows if row.profile == profile]
        for line, field in enumerate(_STREAMS):
            _draw_lines(axes[line][column], own, field)
        axes[0][column].set_title("right profile" if profile == "right" else f"profile {profile} the truth")
        axes[1][column].set_xlabel("load (% of what was measured)")
    for line, name in enumerate(_STREAMS.values()):
        axes[line][0].set_ylabel(f"{name}\nuncovered windows (permille)")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(_LINES))
    figure.savefig(path, dpi=150)


def _draw_lines(axis: Any, rows: Sequence[Row], field: str) -> None:
    """Draw one stream with one profile: a line for each margin that was run."""
    for margin, (colour, style, marker) in _LINES.items():
        own = sorted((row for row in rows if row.margin == margin), key=lambda row: row.load)
        loads, shares = [row.load for row in own], [getattr(row, field) for row in own]
        axis.plot(
            loads,
            shares,
            label=f"margin {margin}",
            color=colour,
            linestyle=style,
            marker=marker,
            markersize=4,
        )
    axis.grid(alpha=0.3)
