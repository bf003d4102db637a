"""A bell that is rung is answered, and once however often it was rung."""

import select
from collections.abc import Callable, Iterator

import pytest

from worker.doorbell import Doorbell


class FakeHub:
    """Calls a reader back as often as there is something to read."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Remember the reader."""
        self.readers[fd] = callback

    def poll(self) -> int:
        """Return how many readers were called."""
        ((fd, callback),) = self.readers.items()
        is_readable = bool(select.select([fd], [], [], 0)[0])
        if is_readable:
            callback()
        return int(is_readable)


@pytest.fixture
def hub() -> FakeHub:
    """Return an event loop."""
    return FakeHub()


@pytest.fixture
def answers() -> list[str]:
    """Return what the bell has caused."""
    return []


@pytest.fixture
def bell(hub: FakeHub, answers: list[str]) -> Iterator[Doorbell]:
    """Return a bell in that loop."""
    bell = Doorbell(lambda: answers.append("came"))
    bell.register(hub)
    yield bell
    bell.close()


def test_ringing_twice_before_the_answer_is_once(hub: FakeHub, bell: Doorbell, answers: list[str]) -> None:
    """The loop comes once, and then there is nothing left to come for."""
    bell.ring()
    bell.ring()

    assert [hub.poll(), hub.poll()] == [1, 0]
    assert answers == ["came"]


def test_a_bell_that_was_answered_rings_again(hub: FakeHub, bell: Doorbell, answers: list[str]) -> None:
    """Nothing is remembered of the first ring."""
    for _ in range(2):
        bell.ring()
        hub.poll()

    assert answers == ["came", "came"]


def test_what_comes_up_during_the_answer_rings_again(hub: FakeHub) -> None:
    """The answer may have looked already where something has changed since."""
    rings = iter([True, False])
    insistent: Doorbell = Doorbell(lambda: insistent.ring() if next(rings) else None)
    insistent.register(hub)
    insistent.ring()

    assert [hub.poll(), hub.poll(), hub.poll()] == [1, 1, 0]
    insistent.close()
