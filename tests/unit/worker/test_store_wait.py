"""A local run waits for its store for a minute without any result in between, and no longer."""

import pytest

from worker.project_state import ProjectState, StageProgress
from worker.store_wait import PATIENCE_SECONDS, StorePatience

AWAY = "the store: the disk is full; free space on its disk"


class Watcher:
    """A run that looks at states, with a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self._patience = StorePatience(lambda: self.now)

    def is_over(self, after_seconds: float, waits_for: str = AWAY, done: int = 0) -> bool:
        """Look again so many seconds later."""
        self.now += after_seconds
        stage = StageProgress(planned=9, done=done, failed=0)
        return self._patience.is_over(ProjectState(state="running", stages={"match": stage}), waits_for)


@pytest.mark.parametrize(("seconds", "is_over"), [(PATIENCE_SECONDS - 1, False), (PATIENCE_SECONDS, True)])
def test_a_minute_is_waited(seconds: float, is_over: bool) -> None:  # noqa: FBT001
    """Not a second less, for a share may be mounted again."""
    watcher = Watcher()
    watcher.is_over(0)

    assert watcher.is_over(seconds) is is_over


def test_a_result_in_between_begins_the_minute_anew() -> None:
    """There is room for some, so there may be for more."""
    watcher = Watcher()
    watcher.is_over(0)
    watcher.is_over(50, done=1)

    assert not watcher.is_over(50, done=1)


def test_a_store_that_comes_back_without_a_result_has_not_come_back() -> None:
    """A probe fits where no artefact does."""
    watcher = Watcher()
    watcher.is_over(0)
    watcher.is_over(30, waits_for="")

    assert watcher.is_over(30)


def test_other_waits_are_not_counted() -> None:
    """A busy machine may be waited for as long as it takes."""
    watcher = Watcher()
    watcher.is_over(0, waits_for="WAIT CPU_PSI: busy")

    assert not watcher.is_over(1000, waits_for="WAIT CPU_PSI: busy")
    assert not watcher.is_over(0)
