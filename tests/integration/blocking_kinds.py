"""Holds the no-op kinds, and a main process that is held up by a job's header `hold_up_seconds`.

A node's main process imports its kind modules, too: so this one can stand for
whatever may hold that up, with the interpreter in its hands.
"""

import time
from typing import Any

from celery.signals import task_received

from tests.integration import noop_kinds

KINDS = noop_kinds.KINDS
_TRIAL = 200_000
_PIECE_SECONDS = 0.02
"""Longer than anything of ours holds it (docs/adr/0069); on a busy machine it takes many times as long."""


@task_received.connect
def _hold_up(request: Any, **_: Any) -> None:
    """Keep the main thread busy in pieces during which no other thread gets the interpreter."""
    deadline = time.monotonic() + float(request.request_dict.get("hold_up_seconds", 0))
    while time.monotonic() < deadline:
        _hold_the_interpreter()


def _hold_the_interpreter() -> None:
    """Compute in one call of C, of a length that a short one has told."""
    started = time.monotonic()
    sum(range(_TRIAL))
    trial_seconds = max(time.monotonic() - started, 1e-6)
    sum(range(int(_TRIAL * _PIECE_SECONDS / trial_seconds)))
