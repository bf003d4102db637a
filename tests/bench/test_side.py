"""A side that hangs or fails is reported, and nothing of it lives on."""

import sys
from pathlib import Path

import psutil
import pytest

from tests.bench.side import SideError, run_side

MODELS = '{"registered_images": 3, "points": 4, "mean_reprojection_error_px": 0.5, "mean_track_length": 2.0}'
HANG_IN_A_FORK = """
import os, time
os.fork()
while True:
    time.sleep(1)
"""


def python(code: str, *arguments: str) -> list[str]:
    """Return the command that runs some code."""
    return [sys.executable, "-c", code, *arguments]


def test_the_largest_model_of_a_side_is_measured() -> None:
    """The first of what it prints."""
    side = run_side(python(f"print('''{{\"models\": [{MODELS}]}}''')"), timeout_seconds=60)

    assert (side.registered_images, side.points, side.track_length) == (3, 4, 2.0)
    assert side.seconds > 0


def test_a_side_that_hangs_is_reported_and_ended_with_what_it_forked(tmp_path: Path) -> None:
    """Though the forked process holds its output open."""
    mark = str(tmp_path)
    with pytest.raises(SideError, match="hung for 2 s: "):
        run_side(python(HANG_IN_A_FORK, mark), timeout_seconds=2)

    # One that has ended and waits to be reaped has no command line any more.
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('no memory')", "failed with 1: no memory"),
        ("""print('{"models": []}')""", "made no model"),
    ],
)
def test_a_side_that_fails_is_reported_with_its_last_words(code: str, words: str) -> None:
    """Not with a traceback of ours."""
    with pytest.raises(SideError, match=words):
        run_side(python(code), timeout_seconds=60)
