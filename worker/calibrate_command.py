"""Holds the command ``calibrate``: measures profiles on this machine and writes them into a file.

Does not cover measuring (:mod:`worker.calibrate`).
"""

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from governor.planning.profile import MIN_SAMPLES, CellKey
from worker.calibrate import Wanted, calibrate
from worker.calibration import Measured
from worker.command_endings import Interrupted, errors, interruptible, plain_errors, say
from worker.command_options import CpusOption, JsonOption, MemoryOption, read_bytes
from worker.local_run import LocalOptions
from worker.profile_file import ProfileFileError, write_profiles
from worker.settings import WrongSettingError

_NS_PER_MS = 1_000_000

OutOption = Annotated[Path, typer.Option(help="File for the profiles.")]
MinutesOption = Annotated[float, typer.Option(min=0.1, max=1440, help="Measure for this long, about.")]


def calibrate_command(
    out: OutOption = Path("profiles.json"),
    minutes: MinutesOption = 10.0,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how long batches take on this machine, for plans; nothing else should run meanwhile."""
    options = LocalOptions(cpus=cpus, memory_bytes=read_bytes(memory), profile="dedicated")
    with plain_errors(), interruptible(f"nothing was measured yet; {out} is as it was"):
        _check_folder(out)
        measured = _measure(out, options, Wanted(seconds=minutes * 60))
    if as_json:
        typer.echo(json.dumps(_to_dict(measured, out)))
        return
    _show(Console(), measured)
    say(f"the profiles are in {out}; a worker plans with them by `profiles = ...` in [planning]")


def _check_folder(out: Path) -> None:
    if not out.resolve().parent.is_dir():
        raise WrongSettingError(f"--out: {out}: there is no folder {out.parent}")


def _measure(out: Path, options: LocalOptions, wanted: Wanted) -> Measured:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with (
        tempfile.TemporaryDirectory(prefix="tiepoint-calibrate-") as folder,
        Progress(*columns, console=errors, disable=not errors.is_terminal) as progress,
    ):
        row = progress.add_task("getting warm", total=wanted.seconds)

        is_written = False

        def note(measured: Measured, seconds: float) -> None:
            nonlocal is_written
            _write(out, measured)
            is_written = True
            found = len(measured.profiles.cells)
            progress.update(row, description=f"{found} cells measured", completed=seconds)

        try:
            measured = calibrate(Path(folder), options, wanted, note)
        except Interrupted as interruption:
            if is_written:
                interruption.go_on = f"what was measured is in {out}; calibrate again for more"
            raise
    _write(out, measured)
    return measured


def _write(out: Path, measured: Measured) -> None:
    try:
        write_profiles(out, measured.profiles, measured.samples)
    except ProfileFileError as error:
        raise WrongSettingError(f"--out: {error}") from error


def _to_dict(measured: Measured, out: Path) -> dict[str, Any]:
    return {
        "file": str(out),
        "samples_needed": MIN_SAMPLES,
        "cells": [_cell(measured, key) for key in sorted(measured.samples)],
        "linear": sorted(measured.profiles.linear),
    }


def _cell(measured: Measured, key: CellKey) -> dict[str, Any]:
    durations = measured.profiles.cells.get(key)
    return {
        "kind": key.kind,
        "variant": key.variant,
        "batch_class": key.batch_class,
        "occupancy": key.occupancy,
        "samples": measured.samples[key],
        "is_measured": durations is not None,
        "p50_ns": durations and durations.p50_ns,
        "p99_ns": durations and durations.p99_ns,
    }


def _show(console: Console, measured: Measured) -> None:
    """Print the cells that were measured, and for each kind what is missing."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name in ("kind", "batch", "beside", "samples", "p50 ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for key, durations in sorted(measured.profiles.cells.items()):
        milliseconds = [f"{ns / _NS_PER_MS:.1f}" for ns in (durations.p50_ns, durations.p99_ns)]
        sizes = (str(key.batch_class), str(key.occupancy), str(measured.samples[key]))
        table.add_row(key.kind, *sizes, *milliseconds)
    console.print(table)
    missing: dict[str, list[str]] = defaultdict(list)
    for key, samples in sorted(measured.missing.items()):
        missing[key.kind].append(f"{key.batch_class} beside {key.occupancy}: {samples}")
    for kind, cells in missing.items():
        told = f"{kind}: fewer than {MIN_SAMPLES} samples for batches of " + ", ".join(cells)
        console.print(told, highlight=False, soft_wrap=True)
