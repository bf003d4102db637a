"""Remote commands do what they say, or say that they do not."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from worker.control_commands import rate_limit, time_limit


def a_state() -> Any:
    """Build what Celery hands to a command: one kind with limits."""
    task = SimpleNamespace(soft_time_limit=1.0, time_limit=2.0)
    return SimpleNamespace(app=SimpleNamespace(tasks={"noop": task}))


def limits(state: Any) -> tuple[Any, Any]:
    """Return the limits of the kind."""
    return state.app.tasks["noop"].soft_time_limit, state.app.tasks["noop"].time_limit


def test_a_kinds_limits_are_changed() -> None:
    """None is no limit."""
    state = a_state()

    assert time_limit(state, "noop", hard=90, soft=None) == {"ok": "time limits set successfully"}
    assert limits(state) == (None, 90)


@pytest.mark.parametrize("wrong", ["60", 0, -1, math.nan, math.inf, True, [1]])
def test_what_is_no_limit_changes_nothing(wrong: Any) -> None:
    """It would be compared with numbers later, in the node's loop."""
    state = a_state()

    assert "above 0" in time_limit(state, "noop", hard=wrong)["error"]
    assert limits(state) == (1.0, 2.0)


def test_a_kind_that_is_not_known_is_told() -> None:
    """As Celery tells it."""
    assert time_limit(a_state(), "nope", hard=1) == {"error": "unknown task"}


def test_a_rate_is_refused_with_what_to_do_instead() -> None:
    """Celery would say that it was set, and nothing would change."""
    assert "noop has no rate" in rate_limit(a_state(), "noop")["error"]
