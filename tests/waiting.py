"""Waits for what must happen, never for an amount of time that a test would measure."""

import time
from collections.abc import Callable
from typing import Any

import pytest


def wait_until(condition: Callable[[], Any], what: str, *, deadline_seconds: float) -> Any:
    """Wait until a condition is true and return its value; fail the test after the deadline."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    pytest.fail(f"waited {deadline_seconds:.0f} s in vain until {what}")
