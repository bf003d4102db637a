"""What a run shows: a line per finished stage, why it waits, what it has come to."""

import io
from typing import Any

import pytest
from rich.console import Console

from worker.client import ProjectState, StageProgress
from worker.display import RunDisplay, show_summary

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


def summary_text(**changes: Any) -> str:
    """Return what is printed for a summary."""
    file = io.StringIO()
    show_summary(Console(file=file, width=200), {**SUMMARY, **changes})
    return file.getvalue()


def test_a_stage_is_told_once_when_its_phase_is_over() -> None:
    """Not before: a window may follow."""
    screen = Screen()
    done = StageProgress(planned=4, done=3, failed=1, seconds=1.25)
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


def test_failures_are_shown_as_they_are_named() -> None:
    """A photo may be called like a markup tag."""
    failure = {"name": "[bold]a[/red].jpg", "cause": "[b]torn[/]", "cure": "copy it"}

    assert "[bold]a[/red].jpg: [b]torn[/]. copy it" in summary_text(failures=[failure])


def test_the_demo_says_how_far_it_is_from_the_truth() -> None:
    """In metres, of the flight's extent."""
    text = summary_text(truth={"centre_rms_m": 0.0123, "extent_m": 81.6})

    assert "RMS 0.012 m over a flight of 82 m" in text
