"""Decides how long a node that was woken lets others go first, and how much it takes at a time. Pure.

One message wakes every node that waits for it. If all of them looked at once,
all of them would claim, and one would get it. Does not cover what wakes a node
(:mod:`worker.puller`) nor what may start (:mod:`worker.intake`).
"""

from collections.abc import Callable

_SPACING_SECONDS = 0.001
"""A look and the claim after it take about so long: nodes that come this far apart do not collide."""
_MOST_SPREAD_SECONDS = 0.125
_HEAD_START_SECONDS = 0.02
"""Idle nodes are given this before one that has work already; a busy machine is late by as much."""


def wait_seconds(nodes: int, *, has_work: bool, draw: Callable[[], float]) -> float:
    """Return how long to wait before looking at what has changed; a node by itself never waits.

    Idle nodes come first, spread over a millisecond each; then those that
    could take one more. ``draw`` returns a number from 0 to 1, at random.
    """
    if nodes <= 1:
        return 0.0
    spread_seconds = min(nodes * _SPACING_SECONDS, _MOST_SPREAD_SECONDS)
    behind_seconds = _HEAD_START_SECONDS + spread_seconds if has_work else 0.0
    return behind_seconds + draw() * spread_seconds


def share_of(waiting: int, nodes: int) -> int:
    """Return how many of the waiting messages one node takes before the others have had their turn."""
    return max(1, -(-waiting // max(1, nodes)))
