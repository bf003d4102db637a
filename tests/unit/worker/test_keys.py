"""Every name in Redis is built and taken apart in one place."""

import pytest

from tests.unit.worker.builders import SEPARATOR
from worker import keys


@pytest.mark.parametrize(
    ("priority", "name"),
    [(0, "noop"), (3, f"noop{SEPARATOR}3"), (6, f"noop{SEPARATOR}6"), (9, f"noop{SEPARATOR}9")],
)
def test_a_list_is_named_as_kombu_names_it_and_read_back(priority: int, name: str) -> None:
    """Priority 0 has no suffix."""
    assert keys.queue_list("noop", priority) == name
    assert (keys.kind_of_list(name), keys.priority_of_list(name)) == ("noop", priority)


def test_the_lists_of_a_kind_come_most_urgent_first() -> None:
    """On Redis 0 is served first."""
    assert [keys.priority_of_list(name) for name in keys.queue_lists("noop")] == [0, 3, 6, 9]


def test_all_but_the_queues_carry_the_prefix() -> None:
    """Nothing of ours can be taken for a queue, or the other way round."""
    names = [keys.LEASES, keys.TICK, keys.DELAYED, keys.DEAD, keys.inflight("one|1"), keys.large("noop")]
    names += [keys.node("one"), keys.project("p"), keys.stage_todo("p", "match")]

    assert all(name.startswith("tiepoint:") for name in names)
    assert len(set(names)) == len(names)
