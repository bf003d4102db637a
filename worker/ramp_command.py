"""Holds the command ``ramp``: how the worker of this machine keeps live streams supplied around full load.

Does not cover the runs (:mod:`worker.ramp`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from worker.command_endings import errors, interruptible, plain_errors, say
from worker.command_options import JsonOption
from worker.ramp import Margin, Ramp, Wanted, like_right, ramp
from worker.ramp_plot import draw
from worker.ramp_scene import RampScene
from worker.scaled_profiles import permille_of
from worker.settings import WrongSettingError

_RESULT, _PLOT = "ramp.json", "ramp.png"
_LEAST_LOAD, _MOST_LOAD = 10, 400
_MARGINS: tuple[Margin, ...] = get_args(Margin)
_NO_PIPELINING = "a worker takes a job when it has room for it, never one ahead"
_Value = TypeVar("_Value")

OutOption = Annotated[Path, typer.Option(help="New folder for figures and plot.")]
LoadsOption = Annotated[str, typer.Option(help="Loads, in percent of what one thread was measured to do.")]
ProfilesOption = Annotated[str, typer.Option(help="What plans are made with: `right`, or wrong by a factor.")]
MarginsOption = Annotated[str, typer.Option(help="How plans are corrected: `fixed`, `learned`.")]
PipeliningOption = Annotated[str, typer.Option(help="Jobs taken ahead of room for them: only 0 is there.")]
CyclesOption = Annotated[int, typer.Option(min=2, help="Periods of the fastest stream in a run.")]
RepeatsOption = Annotated[int, typer.Option(min=1, max=100, help="Runs of each sort; their median counts.")]


def ramp_command(
    out: OutOption = Path("ramp"),
    loads: LoadsOption = "90,95,100,105,110,125",
    profiles: ProfilesOption = "right,x2,x0.7",
    margins: MarginsOption = "fixed,learned",
    pipelining: PipeliningOption = "0",
    cycles: CyclesOption = 200,
    repeats: RepeatsOption = 3,
    as_json: JsonOption = False,
) -> None:
    """Drive one thread of this machine with three live streams around full load; nothing else should run."""
    with plain_errors(), interruptible(f"there is nothing in {out}"):
        _check_pipelining(pipelining)
        wanted = Wanted(
            loads=_read_list(loads, _load),
            profiles=_read_list(profiles, _profile),
            margins=_read_list(margins, _margin),
            cycles=cycles,
            repeats=repeats,
        )
        _make_folder(out)
        say(_in_words(wanted))
        found = _run(wanted)
        report = _to_dict(wanted, found)
        _write(out, report, found)
    if as_json:
        typer.echo(json.dumps(report))
        return
    _show(Console(), found)
    say(f"the figures are in {out / _RESULT}, the plot is in {out / _PLOT}")


def _read_list(text: str, read: Callable[[str], _Value]) -> tuple[_Value, ...]:
    """Read values that commas separate, each once."""
    return tuple(dict.fromkeys(read(name.strip()) for name in text.split(",")))


def _load(text: str) -> int:
    if not text.isdecimal() or not _LEAST_LOAD <= int(text) <= _MOST_LOAD:
        raise WrongSettingError(
            f"--loads: {text!r} is no load; say percent from {_LEAST_LOAD} to {_MOST_LOAD}, e.g. 100"
        )
    return int(text)


def _profile(text: str) -> str:
    permille_of(text, "--profiles")
    return text


def _margin(text: str) -> Margin:
    for margin in _MARGINS:
        if text == margin:
            return margin
    raise WrongSettingError(f"--margins: {text!r} is no margin; there are {', '.join(_MARGINS)}")


def _check_pipelining(text: str) -> None:
    if text != "0":
        raise WrongSettingError(f"--pipelining: {text!r} is not available: {_NO_PIPELINING}; say 0")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir()
    except FileExistsError as error:
        raise WrongSettingError(f"--out: {out} is there already; name a new folder") from error
    except OSError as error:
        raise WrongSettingError(f"--out: {out} cannot be made: {error.strerror}") from error


def _in_words(wanted: Wanted) -> str:
    runs = len(wanted.loads) * len(wanted.profiles) * len(wanted.margins) * wanted.repeats
    loads = ", ".join(map(str, wanted.loads))
    return (
        f"{runs} runs of {wanted.cycles} periods: loads {loads} %; profiles {', '.join(wanted.profiles)}; "
        f"margins {', '.join(wanted.margins)}; repeats {wanted.repeats}; pipelining 0"
    )


def _run(wanted: Wanted) -> Ramp:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=errors, disable=not errors.is_terminal) as progress,
        RampScene() as scene,
    ):
        row = progress.add_task("measuring")

        def note(what: str, number: int, runs: int) -> None:
            progress.update(row, description=what, completed=number, total=runs + 1)

        return ramp(scene, wanted, note)


def _to_dict(wanted: Wanted, found: Ramp) -> dict[str, Any]:
    return {
        "settings": asdict(wanted),
        "p50_ms": found.p50_ms,
        "p99_ms": found.p99_ms,
        "capacity_ms": found.capacity_ms,
        "gap_ms": found.gap_ms,
        "pipelining": {"0": "measured", "1": f"not available: {_NO_PIPELINING}"},
        "rows": [{**asdict(row), "like_right": like_right(row, found.rows)} for row in found.rows],
    }


def _write(out: Path, report: dict[str, Any], found: Ramp) -> None:
    try:
        (out / _RESULT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        draw(found.rows, out / _PLOT)
    except OSError as error:
        raise WrongSettingError(f"--out: {out} cannot be written: {error.strerror}") from error


def _show(console: Console, found: Ramp) -> None:
    kinds = ", ".join(
        f"{kind} {ms:.1f} ms (p99 {found.p99_ms[kind]:.1f})" for kind, ms in found.p50_ms.items()
    )
    gaps = f"{found.gap_ms:.1f} ms between two jobs"
    told = f"100 % is a period of {found.capacity_ms:.1f} ms: {kinds}, and {gaps}"
    console.print(told, highlight=False, soft_wrap=True)
    console.print("uncovered windows in permille: detector / worse of pose and depth", highlight=False)
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name in ("profile", "load", "margin", "uncovered", "vetoes", "delivered", "factor", "like right"):
        table.add_column(name, justify="left" if name in {"profile", "margin"} else "right")
    for row in found.rows:
        factor = f"{row.device_factor_percent} %" if row.device_factor_percent else "-"
        like = {None: "", True: "yes", False: "no"}[like_right(row, found.rows)]
        uncovered = f"{row.detector} / {row.worst_high}"
        numbers = (uncovered, str(row.vetoes), str(row.delivered), factor, like)
        table.add_row(row.profile, str(row.load), row.margin, *numbers)
    console.print(table)
    console.print(f"pipelining 1 is not available: {_NO_PIPELINING}", highlight=False, soft_wrap=True)
