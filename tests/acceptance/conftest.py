"""Holds the command line as a user runs it, and the plain run that it must equal."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import waiting
from tests.conftest import PhotoSet
from tests.plain_runner import PlainResult, run_plain

TIEPOINT = [sys.executable, "-P", "-m", "worker.cli"]
DEADLINE_SECONDS = 120.0
"""How long a test waits for something that must happen; never part of what it measures."""

wait_until = partial(waiting.wait_until, deadline_seconds=DEADLINE_SECONDS)


@dataclass(frozen=True)
class Finished:
    """One run of the command line that has ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, Any]:
        """Return the JSON object that it printed."""
        summary: dict[str, Any] = json.loads(self.stdout)
        return summary


def tiepoint(*arguments: str | Path, **environment: str) -> Finished:
    """Run a command to its end."""
    done = subprocess.run(
        [*TIEPOINT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return Finished(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def start_tiepoint(*arguments: str | Path, **environment: str) -> "subprocess.Popen[str]":
    """Start a command and leave it running."""
    return subprocess.Popen(
        [*TIEPOINT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        # Whoever starts the tests in the background has them ignore Ctrl-C; a user's shell does not.
        preexec_fn=_heed_signals,  # noqa: PLW1509 - it only resets handlers
    )


def _heed_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all below it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def find(processes: list[psutil.Process], word: str) -> list[psutil.Process]:
    """Return the processes that have a word in their command line."""
    found = []
    for process in processes:
        try:
            if any(word in part for part in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def artefacts(project: Path, kind: str) -> int:
    """Return how many artefacts of a kind a project's store holds."""
    return len(list((project / "artefacts" / kind).glob("*/*.sha256")))


@pytest.fixture(scope="session")
def plain_kermit(photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> PlainResult:
    """Return kermit as the stages called in sequence make it: the oracle."""
    return run_plain(photos("kermit"), tmp_path_factory.mktemp("plain"))
