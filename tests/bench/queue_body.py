"""Holds the body that both workers of the queue bench run: nothing, or one note of when it started.

Imports nothing of Tiepoint, so that the stock worker runs without it.
"""

import os
import struct
import time

START = struct.Struct("=q")
"""One note: CLOCK_MONOTONIC nanoseconds, a clock that all processes of a machine share."""


def do_nothing(note: str | None = None) -> None:
    """Do nothing; with ``note`` (the path of a FIFO that somebody reads) tell when that was."""
    if note is None:
        return
    started_ns = time.monotonic_ns()
    fd = os.open(note, os.O_WRONLY)
    os.write(fd, START.pack(started_ns))
    os.close(fd)
