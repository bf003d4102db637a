"""Raises an exception in a callback whose item has met its soft time limit: the child's part.

The main process keeps the time (:mod:`worker.time_limits`) and sends a signal; a callback that computes in
C sees the exception when that returns, and one that never returns is killed at the hard limit.
"""

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from tasks.kind import Outcome

SIGNAL = signal.SIGUSR1
"""Celery's own choice."""


class SoftLimit:
    """Whether an exception may be raised now; main thread only, one per child."""

    def __init__(self) -> None:
        self._soft_seconds: float | None = None
        self._since_ns: int | None = None
        """When the callback went on to its present item; None while it is not running."""

    def listen(self) -> None:
        """Take the signal from now on; before, it would end the process."""
        signal.signal(SIGNAL, self._on_signal)

    def watched(
        self, start: Callable[[], Iterator[Outcome]], soft_seconds: float | None
    ) -> Iterator[Outcome]:
        """Yield what a callback yields; an exception is raised only while the callback itself is running.

        Raises:
            SoftTimeLimitExceeded: an item has taken too long.
        """
        self._soft_seconds = soft_seconds
        outcomes: Iterator[Outcome] | None = None
        while True:
            self._since_ns = time.monotonic_ns()
            try:
                outcomes = start() if outcomes is None else outcomes
                outcome = next(outcomes)
            except StopIteration:
                return
            finally:
                self._since_ns = None
            yield outcome

    def _on_signal(self, *_: Any) -> None:
        """Raise, unless the item that was meant has ended while the signal was under way."""
        if self._soft_seconds is None or self._since_ns is None:
            return
        if time.monotonic_ns() - self._since_ns >= self._soft_seconds * 1e9 / 2:
            raise SoftTimeLimitExceeded(self._soft_seconds)
