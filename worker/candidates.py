"""Decides in which order a node tries what waits for it. Pure; does not cover whether it may start."""

from collections.abc import Mapping, Sequence

from tasks.expand import EXPAND_KIND
from worker.claim import Head

_MOST_PROJECTS = 1000
"""Remembered; more never run at the same time."""


class WaitingTimes:
    """Since when each head has been waiting here, and for what."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[str, ...], int] = {}

    def note(self, heads: Sequence[Head], now_ns: int) -> None:
        """Remember new heads and forget those that are gone."""
        present = {_identity(head) for head in heads}
        self._since_ns = {identity: self._since_ns.get(identity, now_ns) for identity in present}

    def since_ns(self, head: Head) -> int | None:
        """Return when this head was first seen; None where it was not noted."""
        return self._since_ns.get(_identity(head))


def _identity(head: Head) -> tuple[str, ...]:
    return (head.source, head.estimate_text, head.mark, head.identity)


def _since_or_last(head: Head, times: WaitingTimes) -> float:
    since_ns = times.since_ns(head)
    return float("inf") if since_ns is None else since_ns


class Turns:
    """Which projects this node has served, and in which order the last time."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    def note(self, project: str) -> None:
        """Remember that a batch of a project was started now; jobs without a project are one."""
        self._count += 1
        self._served.pop(project, None)
        self._served[project] = self._count
        if len(self._served) > _MOST_PROJECTS:
            del self._served[next(iter(self._served))]  # The one that was served longest ago.

    def last(self, project: str) -> int:
        """Return a number that is the smaller, the longer ago a project was served; 0 = not yet."""
        return self._served.get(project, 0)


def in_order(
    heads: Sequence[Head], stage_of: Mapping[str, int], times: WaitingTimes, turns: Turns
) -> list[Head]:
    """Return heads in the order to try them.

    Most urgent class first; then what is due first, where anything is due;
    then what was set aside as large (it has waited for a node like this);
    then plans, which are short and keep others fed; then the project that was
    served longest ago; within a project the latest pipeline stage, to finish
    before starting; then the longest waiting.
    """
    return sorted(
        heads,
        key=lambda head: (
            head.priority,
            head.due_ms,
            not head.is_large,
            head.kind != EXPAND_KIND,
            turns.last(head.project),
            -stage_of.get(head.kind, 0),
            _since_or_last(head, times),
            head.source,
        ),
    )
