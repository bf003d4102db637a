"""Runs one side of a comparison as a process of its own, measures it, and ends it when it hangs.

A process of its own each: COLMAP's thread pools do not survive a fork, so a
process that has used it hangs in the next one that it forks.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


class SideError(Exception):
    """A side has hung or failed; the text says which, and its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side took, the largest model it made, and the hash of its tracks where it says one."""

    seconds: float
    registered_images: int
    points: int
    reprojection_error_px: float
    track_length: float
    tracks_sha256: str | None = None


def run_side(command: Sequence[str], *, timeout_seconds: float) -> Side:
    """Run a command that prints a JSON object with ``models``, the largest first.

    Raises:
        SideError: it hung, failed, or made no model.
    """
    # Files, not pipes: what a hanging process has forked would keep a pipe open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise SideError(f"hung for {timeout_seconds:.0f} s: {_last_words(errors)}") from error
        finally:
            _kill_group(process)
        seconds = time.monotonic() - started
        if process.returncode != 0:
            raise SideError(f"failed with {process.returncode}: {_last_words(errors)}")
        output.seek(0)
        return _side(seconds, json.load(output))


def _side(seconds: float, summary: dict[str, Any]) -> Side:
    if not summary["models"]:
        raise SideError("made no model")
    largest = summary["models"][0]
    return Side(
        seconds=seconds,
        registered_images=largest["registered_images"],
        points=largest["points"],
        reprojection_error_px=largest["mean_reprojection_error_px"],
        track_length=largest["mean_track_length"],
        tracks_sha256=summary.get("tracks_sha256"),
    )


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(errors: Any) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"
