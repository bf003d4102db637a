"""The node's loop hears of what Celery only notes."""

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.signals import worker_shutting_down

from worker.node import Node
from worker.puller import Puller
from worker.settings import Settings


class FakeHub:
    """An event loop that tells what would make its poll return."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Remember the reader."""
        self.readers[fd] = callback

    def call_repeatedly(self, seconds: float, callback: Callable[[], None]) -> None:
        """Forget the timer: no time passes here."""

    @property
    def is_awake(self) -> bool:
        """Tell whether the poll would return at once."""
        return bool(select.select(list(self.readers), [], [], 0)[0])

    def answer(self) -> None:
        """Call all readers."""
        for callback in self.readers.values():
            callback()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Return the loop of a node that has pulled all there is, and asks no server."""
    pool: Any = object()
    puller = Puller(Node(Settings(store=tmp_path, single_node=True)), pool, lambda _message: [])
    hub = FakeHub()
    puller.register(hub)
    hub.answer()
    yield hub
    puller.stop()


def test_the_loop_sees_at_once_that_the_worker_is_to_stop(hub: FakeHub) -> None:
    """Not when its poll has timed out, a second later."""
    was_awake = hub.is_awake
    worker_shutting_down.send(sender="worker", sig="SIGTERM", how="Warm", exitcode=0)

    assert (was_awake, hub.is_awake) == (False, True)
