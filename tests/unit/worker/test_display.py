"""What a run shows: a line per finished stage, why it waits, what it has come to."""

import errno
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from worker.display import RunDisplay, show_summary
from worker.project_state import ProjectState, StageProgress

BUSY = "WAIT CPU_PSI: CPU pressure 36 % >= 20 %"
SUMMARY: dict[str, Any] = {
    "images": {"imported": 3, "failed": 1},
    "features": 300,
    "pairs": 3,
    "verified_pairs": 2,
    "tracks": 50,
    "observations": 120,
    "models": [],
    "model_reason": None,
    "failures": [],
}
MODEL = {
    "registered_images": 3,
    "points": 40,
    "mean_reprojection_error_px": 0.51234,
    "mean_track_length": 2.5,
}


class Screen:
    """A display without a terminal, whose clock a test sets."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.now = 0.0
        self.display = RunDisplay(Console(file=self._file, width=200), now=lambda: self.now)

    def watch(
        self, waits_for: str = "", *, phase: str = "", stages: dict[str, StageProgress] | None = None
    ) -> None:
        """Show a state."""
        self.display.watch(ProjectState(state="running", phase=phase, stages=stages or {}), waits_for)

    @property
    def lines(self) -> list[str]:
        """Return what was printed."""
        return self._file.getvalue().splitlines()


def summary_text(*, width: int = 200, is_terminal: bool = False, **changes: Any) -> str:
    """Return what is printed for a summary."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=is_terminal, color_system=None)
    show_summary(console, {**SUMMARY, **changes})
    return file.getvalue()


class HungUp(io.StringIO):
    """A terminal that can be closed."""

    is_closed = False

    def hang_up(self) -> None:
        """Close it, which ends whatever runs in it."""
        self.is_closed = True
        raise InterruptedError("hung up")

    def write(self, text: str) -> int:
        """Fail as a closed terminal does."""
        if self.is_closed:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def test_a_stage_is_told_once_when_its_phase_is_over() -> None:
    """Not before: a window may follow."""
    screen = Screen()
    done = StageProgress(planned=4, done=3, failed=1, started_ms=1_000, finished_ms=2_250)
    screen.watch(phase="import", stages={"import": done})
    before = screen.lines
    for _ in range(2):
        screen.watch(phase="features", stages={"import": done})

    assert before == []
    assert screen.lines == ["import: 3 in 1.2 s, 1 failed"]


@pytest.mark.parametrize(("waited_seconds", "is_told"), [(4.9, False), (5.0, True)])
def test_a_busy_machine_is_told_after_five_seconds(waited_seconds: float, is_told: bool) -> None:  # noqa: FBT001
    """A short wait is nobody's business."""
    screen = Screen()
    screen.watch(BUSY)
    screen.now = waited_seconds
    screen.watch(BUSY)

    told = "machine busy (CPU pressure 36 % >= 20 %); --profile dedicated ignores it"
    assert screen.lines == ([told] if is_told else [])


def test_only_for_the_pressure_on_the_cpu_another_profile_is_a_cure() -> None:
    """Every profile heeds a machine that is out of memory."""
    screen = Screen()
    for screen.now in (0.0, 5.0):
        screen.watch("WAIT PRESSURE_RED: the machine is out of memory or swapping")

    assert screen.lines == ["machine busy (the machine is out of memory or swapping)"]


def test_a_busy_machine_is_told_sparingly() -> None:
    """Once a minute, however often somebody looks."""
    screen = Screen()
    for second in range(66):
        screen.now = float(second)
        screen.watch(BUSY)

    assert len(screen.lines) == 2


def test_a_wait_that_ends_starts_anew() -> None:
    """Two short waits are no long one."""
    screen = Screen()
    for second, waits_for in ((0, BUSY), (4, ""), (5, BUSY), (9, BUSY)):
        screen.now = float(second)
        screen.watch(waits_for)

    assert screen.lines == []


def test_waiting_for_a_slot_is_not_the_machine_being_busy() -> None:
    """The run's own jobs hold the slots."""
    screen = Screen()
    for second in (0, 60):
        screen.now = float(second)
        screen.watch("WAIT SLOTS_BUSY: 0 of 2 IO slots are free")

    assert screen.lines == []


def test_a_terminal_has_bars_instead_of_lines() -> None:
    """Nothing is printed twice."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    with RunDisplay(console) as display:
        display.watch(ProjectState(state="running", stages={"match": StageProgress(planned=4, done=4)}), "")

    assert "4/4" in file.getvalue()
    assert "match: 4 in" not in file.getvalue()


def test_the_summary_counts_what_there_is() -> None:
    """One line for all projects."""
    expected = "3 images, 300 features, 2 of 3 pairs verified, 50 tracks of 120 observations"

    assert summary_text().splitlines() == [expected]


def test_the_summary_shows_models_or_why_there_are_none() -> None:
    """A table, or a sentence."""
    assert "0.512" in summary_text(models=[MODEL])
    assert "no sparse model: too few photos" in summary_text(model_reason="too few photos")


@pytest.mark.parametrize(
    ("width", "is_terminal", "is_boxed"),
    [(48, True, True), (47, True, False), (40, True, False), (200, False, False)],
)
def test_models_are_boxed_only_on_a_terminal_with_room_for_it(
    width: int,
    is_terminal: bool,  # noqa: FBT001 - a table
    is_boxed: bool,  # noqa: FBT001
) -> None:
    """Nothing is cut off or squeezed in either form."""
    text = summary_text(width=width, is_terminal=is_terminal, models=[{**MODEL, "points": 12345}])

    assert ("\u2502" in text) is is_boxed
    assert all(word in text for word in ("registered", "12345", "0.512", "2.50"))
    assert "\u2026" not in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_every_sentence_is_one_line_in_a_file(width: int) -> None:
    """Whatever width is assumed: a line can be searched for and copied."""
    failure = {"name": "a.jpg", "cause": "the file ends in the middle " * 5, "cure": "copy it"}
    text = summary_text(width=width, failures=[failure], model_reason="too few photos " * 10)

    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(("width", "has_bar"), [(59, False), (60, True), (40, False)])
def test_progress_keeps_its_counts_on_a_narrow_terminal(width: int, has_bar: bool) -> None:  # noqa: FBT001
    """The bar goes first."""
    file = io.StringIO()
    stage = StageProgress(planned=123_456, done=100_000, failed=12)
    with RunDisplay(Console(file=file, force_terminal=True, width=width, color_system=None)) as display:
        display.watch(ProjectState(state="running", stages={"features": stage}), "")

    assert "100012/123456" in file.getvalue()
    assert "12 failed" in file.getvalue()
    assert ("\u2501" in file.getvalue()) is has_bar


def test_the_time_that_is_left_stands_behind_the_last_bar() -> None:
    """There is none in a state that tells nothing of it."""
    file = io.StringIO()
    match = StageProgress(planned=400, done=100, started_ms=1, finished_ms=10_001)
    kinds = {"matcher.run": {"items": 100, "batches": 50, "busy_seconds": 20.0}}
    state = ProjectState(state="running", stages={"match": match}, kinds=kinds, ahead={"images": 9})
    with RunDisplay(Console(file=file, force_terminal=True, width=100, color_system=None)) as display:
        display.watch(replace(state, ahead={}), "")
        before = file.getvalue()
        display.watch(state, "")

    assert "left" not in before
    assert re.search(r"about \d+ s left", file.getvalue())


def test_a_terminal_that_is_gone_does_not_hide_why_the_run_ended() -> None:
    """Closing the window ends the run by a signal, and its bars cannot be drawn any more."""
    file = HungUp()
    display = RunDisplay(Console(file=file, force_terminal=True, width=80))

    with pytest.raises(InterruptedError, match="hung up"), display:
        file.hang_up()


def test_failures_are_shown_as_they_are_named() -> None:
    """A photo may be called like a markup tag."""
    failure = {"name": "[bold]a[/red].jpg", "cause": "[b]torn[/]", "cure": "copy it"}

    assert "[bold]a[/red].jpg: [b]torn[/]. copy it" in summary_text(failures=[failure])


def test_the_demo_says_how_far_it_is_from_the_truth() -> None:
    """In metres, of the flight's extent."""
    text = summary_text(truth={"centre_rms_m": 0.0123, "extent_m": 81.6})

    assert "RMS 0.012 m over a flight of 82 m" in text


def test_a_store_that_is_waited_for_is_told_at_once_and_once() -> None:
    """With its cause and cure; and when it is back."""
    screen, away = Screen(), "the store: the disk is full (0 bytes free of 20.0 MiB); free space on its disk"
    for waits_for in ("", away, away, "", ""):
        screen.watch(waits_for)

    assert screen.lines == [f"waiting for {away}", "the store is back"]
