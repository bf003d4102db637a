"""Shows a run: progress bars on a terminal, plain lines elsewhere, a summary at the end.

Readable on narrow terminals and in files, where nothing is boxed and every
sentence is one line. Does not compute what it shows.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from tasks.catalog import STAGES
from worker.eta import eta_seconds, in_words, shipped_reference
from worker.project_state import ProjectState, StageProgress
from worker.store_wait import is_for_store

_TELL_AFTER_SECONDS = 5.0
_TELL_AGAIN_AFTER_SECONDS = 60.0
_MACHINE_IS_BUSY = ("CPU_PSI", "MEMORY_PSI", "IO_PSI", "PRESSURE_RED", "PRESSURE_CAP")
_ROOM_FOR_BARS_COLUMNS = 60
"""Narrower terminals would cut the counts off to draw a bar."""
_WIDEST_TABLE_COLUMNS = 200
_PHASE_OF = dict.fromkeys(("pairs", "match", "verify"), "matching")


class RunDisplay:
    """Progress of one run; enter it, call :meth:`watch` with each state."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._progress = Progress(
            *_progress_columns(console), console=console, disable=not console.is_terminal
        )
        self._rows: dict[str, TaskID] = {}
        self._finished: set[str] = set()
        self._busy_since: float | None = None
        self._tell_again_at = 0.0
        self._is_store_away = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # The terminal is gone; what there was to show is of no use to anybody.
            self._progress.stop()

    def watch(self, state: ProjectState, waits_for: str) -> None:
        """Show a state."""
        shown = [stage for stage in STAGES if stage in state.stages]
        left = eta_seconds(state, shipped_reference())
        for stage in shown:
            is_last = stage == shown[-1]
            self._show_stage(stage, state.stages[stage], left if is_last else None)
            self._tell_finished(stage, state)
        self._tell_waiting(waits_for)
        self._tell_store(waits_for)

    def tell(self, sentence: str) -> None:
        """Print a sentence above the bars; names in it are no markup."""
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def _show_stage(self, stage: str, progress: StageProgress, seconds_left: float | None) -> None:
        """Draw a stage's bar; behind the last one stands when all will be done."""
        done = progress.done + progress.failed
        notes = [f"{progress.failed} failed"] if progress.failed else []
        notes += [] if seconds_left is None else [in_words(seconds_left)]
        note = ", ".join(notes)
        if stage not in self._rows:
            self._rows[stage] = self._progress.add_task(stage, total=progress.planned, note=note)
        self._progress.update(self._rows[stage], completed=done, total=progress.planned, note=note)

    def _tell_finished(self, stage: str, state: ProjectState) -> None:
        """Print a line per finished stage where there is no terminal to draw bars on."""
        is_over = state.phase not in {"", _PHASE_OF.get(stage, stage)}
        if self._console.is_terminal or stage in self._finished or not is_over:
            return
        self._finished.add(stage)
        progress = state.stages[stage]
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._say(f"{stage}: {progress.done} in {progress.seconds:.1f} s{failed}")

    def _tell_waiting(self, waits_for: str) -> None:
        """Say after a while, and then now and again, that the machine is too busy for the profile."""
        now = self._now()
        if not any(reason in waits_for for reason in _MACHINE_IS_BUSY):
            self._busy_since = None
            return
        if self._busy_since is None:
            self._busy_since = now
        if now - self._busy_since >= _TELL_AFTER_SECONDS and now >= self._tell_again_at:
            self._tell_again_at = now + _TELL_AGAIN_AFTER_SECONDS
            detail = waits_for.partition(": ")[2]
            # The pressure on the CPU is the only one of these that any profile ignores.
            is_for_cpu = "CPU_PSI" in waits_for
            self._say(
                f"machine busy ({detail}); --profile dedicated ignores it"
                if is_for_cpu
                else f"machine busy ({detail})"
            )

    def _tell_store(self, waits_for: str) -> None:
        """Say at once, and once, that the store is waited for, and that it has come back."""
        is_away = is_for_store(waits_for)
        if is_away != self._is_store_away:
            self._is_store_away = is_away
            self.tell(f"waiting for {waits_for}" if is_away else "the store is back")

    def _say(self, sentence: str) -> None:
        self._console.print(sentence, soft_wrap=True)


def _progress_columns(console: Console) -> list[ProgressColumn]:
    stage, note = TextColumn("{task.description:<10}"), TextColumn("{task.fields[note]}")
    if console.width < _ROOM_FOR_BARS_COLUMNS:
        return [stage, MofNCompleteColumn(), note]
    return [stage, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note]


def show_summary(console: Console, summary: dict[str, Any]) -> None:
    """Print what a project has come to, for people."""
    images = summary["images"]
    console.print(
        f"{images['imported']} images, {summary['features']} features, "
        f"{summary['verified_pairs']} of {summary['pairs']} pairs verified, "
        f"{summary['tracks']} tracks of {summary['observations']} observations",
        soft_wrap=True,
    )
    if summary["models"]:
        _show_models(console, summary["models"])
    elif summary["model_reason"]:
        console.print(f"no sparse model: {summary['model_reason']}", markup=False, soft_wrap=True)
    for failure in summary["failures"]:
        # Names are the user's: a bracket in one is no markup.
        name, cause = failure["name"], failure["cause"].rstrip(".")
        sentence = f"{cause if cause.startswith(name) else f'{name}: {cause}'}. {failure['cure']}"
        console.print(sentence, style="red", markup=False, soft_wrap=True)
    if "truth" in summary:
        truth = summary["truth"]
        console.print(
            f"camera centres against the truth: RMS {truth['centre_rms_m']:.3f} m "
            f"over a flight of {truth['extent_m']:.0f} m",
            soft_wrap=True,
        )


def _show_models(console: Console, models: list[dict[str, Any]]) -> None:
    """Print a table: boxed on a terminal with room for it, else plain and about 40 columns wide."""
    boxed = _model_table(models, box.HEAVY_HEAD)
    if console.is_terminal and _width_columns(console, boxed) <= console.width:
        console.print(boxed)
    else:
        console.print("sparse models")
        plain = _model_table(models, None)
        console.print(plain, width=_width_columns(console, plain), crop=False)


def _width_columns(console: Console, table: Table) -> int:
    """Return how wide a table is that nothing squeezes."""
    return Measurement.get(console, console.options.update(width=_WIDEST_TABLE_COLUMNS), table).maximum


def _model_table(models: list[dict[str, Any]], border: box.Box | None) -> Table:
    table = Table(title="sparse models" if border else None, box=border, pad_edge=border is not None)
    if border is None:
        table.padding = (0, 1, 0, 0)
    for column in ("model", "registered\nimages", "points", "error\npx", "track\nlength"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, model in enumerate(models):
        table.add_row(
            str(index),
            str(model["registered_images"]),
            str(model["points"]),
            f"{model['mean_reprojection_error_px']:.3f}",
            f"{model['mean_track_length']:.2f}",
        )
    return table
