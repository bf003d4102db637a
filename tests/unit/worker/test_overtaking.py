"""A head is overtaken by what is started of other lists while it waits."""

import pytest

from tests.unit.worker.builders import KIND, a_head
from worker.overtaking import Overtaking


def test_a_head_is_overtaken_by_what_is_started_of_another_list() -> None:
    """Since it is known, not before; and what starts of its own list was the head."""
    waits = Overtaking()
    waits.note_started("other", 1)
    waits.note_seen([a_head()], 1)
    waits.note_started(KIND, 2)
    assert not waits.of(a_head()).is_overtaken
    waits.note_started("other", 2)

    assert waits.of(a_head()).is_overtaken


def test_a_head_that_is_unknown_is_not_overtaken() -> None:
    """Nothing is known of how it has waited."""
    waits = Overtaking()
    waits.note_started("other", 1)

    assert not waits.of(a_head()).is_overtaken


def test_what_was_seen_and_what_was_tried_are_told_apart() -> None:
    """A busy node sees, but does not try."""
    waits = Overtaking()
    waits.note_seen([a_head()], 1)
    assert waits.of(a_head()).tried_since_ns is None
    waits.note_tried([a_head()], 5)
    waiting = waits.of(a_head())

    assert (waiting.seen_since_ns, waiting.tried_since_ns) == (1, 5)


@pytest.mark.parametrize(("after_ns", "is_starved"), [(9, True), (10, False)])
def test_a_head_is_starved_when_it_was_overtaken_and_has_waited(after_ns: int, *, is_starved: bool) -> None:
    """Both: among equals a head may wait long for memory that its equals hold."""
    waits = Overtaking()
    waits.note_tried([a_head()], 1)
    assert not waits.of(a_head()).is_starved(10, after_ns)
    waits.note_started("other", 5)

    assert waits.of(a_head()).is_starved(10, after_ns) == is_starved
