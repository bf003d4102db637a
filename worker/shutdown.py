"""Makes the second SIGTERM a cold shutdown, and a hangup a warm one.

Celery ignores a second SIGTERM, and only SIGQUIT ends a warm shutdown early;
who asks again does not want to wait, and nothing is lost by it: what runs goes
back uncounted. On a hangup Celery starts itself anew by a command that fails
where it was started by ``python -m``, or is just killed. Does not cover what a
shutdown does (:mod:`worker.pool`, :mod:`worker.puller`).
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from celery.signals import worker_shutting_down

_SAME_WISH_NS = 1_000_000_000
"""Two signals closer than this are one wish that came twice: to the process, and to its group."""


def _quit() -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


class Patience:
    """Counts the wishes for a warm shutdown; main thread only, called from Celery's signal handlers."""

    def __init__(
        self, now_ns: Callable[[], int] = time.monotonic_ns, on_second: Callable[[], None] = _quit
    ) -> None:
        self._now_ns = now_ns
        self._on_second = on_second
        self._first_ns: int | None = None

    def listen(self) -> None:
        """Hear of each wish that comes from now on, in Celery's words or as a hangup."""
        worker_shutting_down.connect(self.on_shutting_down)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))

    def on_shutting_down(self, how: str, **_: Any) -> None:
        """Let the first wish take its course; at the second end at once."""
        if how != "Warm":
            return
        now_ns = self._now_ns()
        if self._first_ns is None:
            self._first_ns = now_ns
        elif now_ns - self._first_ns > _SAME_WISH_NS:
            self._on_second()
