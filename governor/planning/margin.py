"""Holds the margin of a kind's plans where nothing is learned: up at once after an overrun, down slowly.

In tenths of percent points. Does not cover the learned factor (:mod:`governor.planning.learner`).
"""

MAX_MARGIN_PERCENT = 300
UNVERIFIED_POINTS = 40
_UP_TENTHS = 99
_DOWN_TENTHS = 1


class Margins:
    """The margins of all kinds of one node."""

    def __init__(self, start_percent: int) -> None:
        self._floor_tenths = start_percent * 10
        self._tenths: dict[str, int] = {}

    def percent(self, kind: str, *, is_verified: bool = True) -> int:
        """Return a kind's margin in percent of the duration, rounded up."""
        percent = -(-self._tenths.get(kind, self._floor_tenths) // 10)
        return percent if is_verified else percent + UNVERIFIED_POINTS

    def observe(self, kind: str, *, overran: bool) -> None:
        """Learn from one execution whether its plan was kept."""
        tenths = self._tenths.get(kind, self._floor_tenths)
        moved = tenths + _UP_TENTHS if overran else tenths - _DOWN_TENTHS
        self._tenths[kind] = min(max(moved, self._floor_tenths), MAX_MARGIN_PERCENT * 10)
