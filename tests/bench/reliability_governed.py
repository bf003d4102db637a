"""Holds the governed worker's app as the reliability bench starts it: some of its events may be lost."""

from tests.bench.reliability_events import drop_some_events
from worker.app import app

__all__ = ["app"]

drop_some_events()
