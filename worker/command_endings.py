"""Holds how commands end: exit codes, errors and interruptions in one sentence, results.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with failures, 128 + n ended by
signal n (130 Ctrl-C). Does not cover what the commands do.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from rich.console import Console

from tasks.errors import ProjectError, TasksError
from worker.display import show_summary
from worker.embedded import ServerError
from worker.local_run import RunError
from worker.project_queue import QueueError
from worker.settings import WrongSettingError

EXIT_FAILED, EXIT_USAGE, EXIT_WITH_FAILURES = 1, 2, 3
EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_TERMINATED = 129, 130, 143
SIGNAL_EXITS = {
    signal.SIGHUP: EXIT_HUNG_UP,
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
}

errors = Console(stderr=True)
"""Where progress, warnings and errors go."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code."""
    try:
        yield
    except (ProjectError, WrongSettingError) as error:
        say(f"error: {error}", style="red")
        raise typer.Exit(EXIT_USAGE) from error
    except (TasksError, ServerError, RunError, QueueError) as error:
        say(f"error: {error}", style="red")
        raise typer.Exit(EXIT_FAILED) from error


def say(sentence: str, *, style: str | None = None) -> None:
    """Print a sentence as one line: names in it are no markup, and commands can be copied."""
    errors.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def show(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print what a project has come to, for people or for programs."""
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        show_summary(Console(), summary)


def exit_with_failures(summary: dict[str, Any]) -> None:
    """Exit with a code of its own where items were left out, or nothing is left."""
    if summary["failures"]:
        raise typer.Exit(EXIT_WITH_FAILURES if summary["images"]["imported"] else EXIT_FAILED)


class Interrupted(BaseException):
    """A signal asks us to end; everything is left as after an error."""

    go_on = ""
    """How to go on afterwards."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = SIGNAL_EXITS[signal.Signals(signum)]


@contextmanager
def interruptible(go_on: str) -> Iterator[None]:
    """Note how the user goes on if a signal ends the block; an inner block knows better."""
    try:
        yield
    except Interrupted as interruption:
        interruption.go_on = interruption.go_on or go_on
        raise


def heed_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise :class:`Interrupted` in the main thread."""
    for signum in SIGNAL_EXITS:
        # Ignored from the start stays ignored: that is what nohup is for.
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)


def _interrupt(signum: int, _frame: FrameType | None) -> None:
    # One is enough: a second (a closed terminal sends several) must not stop the cleaning up.
    for other in SIGNAL_EXITS:
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(signum)
