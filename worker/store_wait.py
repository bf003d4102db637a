"""Holds how a node says that it waits for its store, and decides how long a local run waits for that.

Does not cover what is wrong with the store (:mod:`worker.store_health`).
"""

import time
from collections.abc import Callable

from worker.project_state import ProjectState

WAITS_FOR_STORE = "the store: "
"""With this begins what a node says it waits for, where it is its store; cause and cure follow."""
PATIENCE_SECONDS = 60.0
"""On one machine the user sits beside it, and can mend the store before going on."""


def is_for_store(waits_for: str) -> bool:
    """Tell whether what a node waits for is its store."""
    return waits_for.startswith(WAITS_FOR_STORE)


class StorePatience:
    """How long a run has waited for its store without any job finishing in between."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._done = 0
        self._since: float | None = None

    def is_over(self, state: ProjectState, waits_for: str) -> bool:
        """Tell whether it has waited for too long; asked with each state that is looked at.

        A store that comes back, and fails again before a job is done, has not come back.
        """
        done = sum(stage.done for stage in state.stages.values())
        if done != self._done:
            self._done, self._since = done, None
        if not is_for_store(waits_for):
            return False
        if self._since is None:
            self._since = self._now()
        return self._now() - self._since >= PATIENCE_SECONDS
