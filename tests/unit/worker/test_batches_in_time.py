"""Tests of batches that must end by a deadline."""

import pytest

from governor.model import Estimate
from governor.planning.contract import Contract
from governor.planning.planner import Plan
from governor.planning.profile import CellKey
from worker.batches_in_time import in_time

ESTIMATE = Estimate(memory_fixed_bytes=1, memory_per_item_bytes=1, min_batch=2, max_batch=32)


def ten_each(items: int) -> Plan:
    """Plan 10 ns for each item."""
    return Plan(
        key=CellKey.of("match", items=items, others=0),
        items=items,
        conservative_ns=10 * items,
        optimistic_ns=5 * items,
    )


@pytest.mark.parametrize(
    ("deadline_ns", "period_ns", "most"),
    [
        (320, None, 32),
        (319, None, 16),
        (80, 1000, 8),
        (1000, 79, 4),
        (20, None, 2),
        (19, None, 2),
        (None, None, 32),
    ],
)
def test_a_batch_is_as_large_as_ends_in_time(
    deadline_ns: int | None, period_ns: int | None, most: int
) -> None:
    """By the deadline and within the period; the smallest in any case, for nothing is refused."""
    contract = Contract(deadline_ns=deadline_ns, period_ns=period_ns)

    assert in_time(ESTIMATE, contract, ten_each).max_batch == most


def test_where_nothing_is_known_nothing_changes() -> None:
    """A kind without a profile is worked on as it always was."""
    assert in_time(ESTIMATE, Contract(deadline_ns=1), lambda _items: None) == ESTIMATE
