"""Draws a simulation's table as a picture, for those who would rather look than read.

matplotlib is imported here only, and only where a plot is asked for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from governor.simulation.tables import CarryOverRow, EdgeRow, PlanSizeRow
from worker.settings import WrongSettingError
from worker.simulation_views import Row

FORMATS = (".png", ".svg", ".pdf")
_SETTINGS = (
    ("fifo", "first in, first out", "#888888", ":", "s"),
    ("fixed_110", "margin fixed at 110 %", "#0072b2", "--", "o"),
    ("learned", "margin learned", "#d55e00", "-", "D"),
)
"""Field, name, colour (of Okabe and Ito's palette, told apart by the colour-blind), line, marker."""
_STREAMS = ("detector (protected)", "worse of pose and depth (high)")
_UNCOVERED = "uncovered windows (permille)"


def check_format(path: Path) -> None:
    """Refuse a file that no plot can be written as, before anything is computed.

    Raises:
        WrongSettingError: its name ends otherwise, or its folder is not there.
    """
    if path.suffix.lower() not in FORMATS:
        raise WrongSettingError(f"--plot: {path}: name a file that ends with {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise WrongSettingError(f"--plot: {path}: there is no folder {path.parent}")


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a table; all rows are of one kind.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - it takes a second that no other command needs

    figure = Figure(layout="constrained")
    if isinstance(rows[0], EdgeRow):
        _draw_edge(figure, [row for row in rows if isinstance(row, EdgeRow)])
    elif isinstance(rows[0], PlanSizeRow):
        _draw_plan_sizes(figure, [row for row in rows if isinstance(row, PlanSizeRow)])
    else:
        _draw_carry_over(figure, [row for row in rows if isinstance(row, CarryOverRow)])
    figure.savefig(path, dpi=150)


def _draw_edge(figure: Any, rows: Sequence[EdgeRow]) -> None:
    """One column per profile, one line per setting: the protected stream above, the others below."""
    profiles = list(dict.fromkeys(row.profile for row in rows))
    figure.set_size_inches(3.2 * len(profiles), 6)
    axes = figure.subplots(2, len(profiles), sharex=True, sharey="row", squeeze=False)
    for column, profile in enumerate(profiles):
        own = [row for row in rows if row.profile == profile]
        for stream in range(2):
            for field, name, colour, line, marker in _SETTINGS:
                axes[stream][column].plot(
                    [row.load for row in own],
                    [getattr(row, field)[stream] for row in own],
                    label=name,
                    color=colour,
                    linestyle=line,
                    marker=marker,
                    markersize=4,
                )
            axes[stream][column].grid(alpha=0.3)
        axes[0][column].set_title("right profile" if profile == "right" else f"profile {profile} the truth")
        axes[1][column].set_xlabel("load (% of one slot)")
    for stream, name in enumerate(_STREAMS):
        axes[stream][0].set_ylabel(f"{name}\n{_UNCOVERED}")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(_SETTINGS))


def _draw_plan_sizes(figure: Any, rows: Sequence[PlanSizeRow]) -> None:
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    names = [f"{row.profile}\n{_setting(row)}" for row in rows]
    for offset, name, colour, field in (
        (-0.2, _STREAMS[0], "#d55e00", "detector_permille"),
        (0.2, _STREAMS[1], "#0072b2", "worst_high_permille"),
    ):
        places = [index + offset for index in range(len(rows))]
        bars = axes.bar(places, [getattr(row.figures, field) for row in rows], 0.4, label=name, color=colour)
        axes.bar_label(bars)
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel(_UNCOVERED)
    axes.set_title("plans of twice the truth starve the others; smaller plans share", loc="left")
    axes.legend()


def _setting(row: PlanSizeRow) -> str:
    return "fixed 110 %" if row.min_factor_percent is None else f"min {row.min_factor_percent} %"


def _draw_carry_over(figure: Any, rows: Sequence[CarryOverRow]) -> None:
    figure.set_size_inches(7, 4)
    all_axes = figure.subplots(1, 2, sharey=True)
    for stream, axes in enumerate(all_axes):
        places = range(len(rows))
        axes.bar([x - 0.2 for x in places], [row.carried[stream] for row in rows], 0.4, label="carried over")
        axes.bar([x + 0.2 for x in places], [row.right[stream] for row in rows], 0.4, label="right profile")
        axes.set_xticks(places, [f"seed {row.seeds[1]}" for row in rows])
        axes.set_title(_STREAMS[stream])
    all_axes[0].set_ylabel(_UNCOVERED)
    all_axes[0].legend()
