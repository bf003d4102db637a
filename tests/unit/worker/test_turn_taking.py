"""A node by itself never waits; many nodes come one after the other, idle ones first."""

import pytest

from worker.turn_taking import share_of, wait_seconds


def waits(nodes: int, *, has_work: bool = False) -> tuple[float, float]:
    """Return the shortest and the longest wait of a node among so many."""
    shortest, longest = (
        wait_seconds(nodes, has_work=has_work, draw=lambda: drawn)  # noqa: B023 - called at once
        for drawn in (0.0, 1.0)
    )
    return shortest, longest


def test_a_node_by_itself_does_not_wait() -> None:
    """Whether it has work or not."""
    assert waits(1) == waits(1, has_work=True) == (0.0, 0.0)


@pytest.mark.parametrize(("nodes", "longest"), [(2, 0.002), (64, 0.064), (125, 0.125), (126, 0.125)])
def test_idle_nodes_are_spread_over_a_millisecond_each(nodes: int, longest: float) -> None:
    """Up to an eighth of a second."""
    shortest, found = waits(nodes)

    assert shortest == 0
    assert found == pytest.approx(longest)


@pytest.mark.parametrize("nodes", [2, 64, 1000])
def test_whoever_has_work_comes_after_all_idle_nodes(nodes: int) -> None:
    """With a head start for those that are late."""
    assert waits(nodes, has_work=True)[0] >= waits(nodes)[1] + 0.02


@pytest.mark.parametrize(
    ("waiting", "nodes", "share"), [(0, 2, 1), (1, 2, 1), (2, 2, 1), (3, 2, 2), (100, 1, 100)]
)
def test_a_share_is_an_equal_part_rounded_up(waiting: int, nodes: int, share: int) -> None:
    """At least one message."""
    assert share_of(waiting, nodes) == share
