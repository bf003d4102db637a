"""Decides how many threads OpenCV may use while a job runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import cv2


@contextmanager
def opencv_threads(count: int) -> Iterator[None]:
    """Let OpenCV use ``count`` threads of its own pool, then as many as before.

    The setting belongs to the process, so one batch at a time may do this.
    """
    before = cv2.getNumThreads()
    cv2.setNumThreads(count)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
