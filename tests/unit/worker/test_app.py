"""The app holds each kind's time limits where Celery, and `celery control`, look for them."""

from typing import Any

import pytest

from worker.app import create_app
from worker.settings import Settings, WrongSettingError


def limits_of(kind: str, **settings: Any) -> tuple[float, float]:
    """Return soft and hard seconds of a kind's task."""
    app = create_app(Settings.checked(**settings))
    task: Any = app.tasks[kind]
    return task.soft_time_limit, task.time_limit


def test_a_task_has_the_limits_of_its_kind_or_of_the_settings() -> None:
    """Those that are not named keep their own."""
    changed = {"matcher.run": (1.5, 2)}

    assert limits_of("matcher.run", time_limits=changed) == (1.5, 2)
    assert limits_of("import.images", time_limits=changed) == limits_of("import.images") == (3600, 4500)


def test_limits_of_an_unknown_kind_are_refused() -> None:
    """A misspelt name would change nothing, and nobody would notice."""
    with pytest.raises(WrongSettingError, match=r"TIEPOINT_TIME_LIMITS: there is no kind matcher\.runs"):
        limits_of("matcher.run", time_limits={"matcher.runs": (1, 2)})


@pytest.mark.parametrize("limits", [(2, 1), (0, 1), (-1, 1), (1, float("inf"))])
def test_limits_that_make_no_sense_are_refused(limits: tuple[float, float]) -> None:
    """The first is the soft one."""
    with pytest.raises(WrongSettingError, match=r"of matcher\.run: first the soft limit, then the hard one"):
        Settings.checked(time_limits={"matcher.run": limits})


def test_equal_limits_are_hard_ones() -> None:
    """The soft one would come at the same moment."""
    assert limits_of("matcher.run", time_limits={"matcher.run": (5, 5)}) == (5, 5)
