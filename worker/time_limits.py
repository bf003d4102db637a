"""Decides when an item has been at work for too long, and words it. Pure.

The limits are those of Celery: a message's own, else its kind's, as settings or ``celery control time_limit``
have it. Does not cover what follows (:mod:`worker.pool`, :mod:`worker.running_batch`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tasks.errors import Failure, Reason
from tasks.kind import Kind, TimeLimit

TICK_SECONDS = 1.0
"""How often the clocks are read: an item is late by this much at most."""
WARM_UP_SECONDS = 300.0
"""What a child may take to load what a kind needs, the first time."""
_MOST_LATE_NS = 1_000_000_000
"""A tick that is later than this tells that we were stopped or blocked, and have not heard what has ended."""
_HARD, _SOFT = 0, 1
"""The order in which Celery's header `timelimit` has them."""


class Overrun(StrEnum):
    """Which limit an item has met."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(slots=True, kw_only=True)
class ItemClock:
    """How long the item (or the window of items) that a child is at has been at work, by CLOCK_MONOTONIC."""

    limit: TimeLimit
    since_ns: int
    has_told_soft: bool = False

    def restart(self, limit: TimeLimit, now_ns: int) -> None:
        """Begin anew: an item has ended, the next is at work."""
        self.limit, self.since_ns, self.has_told_soft = limit, now_ns, False

    def excuse(self, pause_ns: int, now_ns: int) -> None:
        """Do not count a stretch in which nobody could hear what has ended."""
        self.since_ns = max(self.since_ns, min(self.since_ns + pause_ns, now_ns))

    def overrun(self, now_ns: int) -> Overrun | None:
        """Return the limit that is met now; the soft one is told once."""
        seconds = (now_ns - self.since_ns) / 1e9
        if self.limit.hard_seconds is not None and seconds >= self.limit.hard_seconds:
            return Overrun.HARD
        if self.limit.soft_seconds is None or self.has_told_soft or seconds < self.limit.soft_seconds:
            return None
        self.has_told_soft = True
        return Overrun.SOFT


class Ticks:
    """Tells after each tick for how long this process has not been running."""

    def __init__(self, now_ns: int) -> None:
        self._last_ns = now_ns

    def pause_ns(self, now_ns: int) -> int:
        """Return by how much this tick is late; 0 where that is nothing out of the ordinary."""
        late_ns = now_ns - self._last_ns - round(TICK_SECONDS * 1e9)
        self._last_ns = now_ns
        return late_ns if late_ns > _MOST_LATE_NS else 0


def limit_of(request: Any) -> TimeLimit:
    """Return the limit of one job from Celery's request: what its sender said, else what its kind has."""
    own, task = request.time_limits, request.task
    return _limit(own[_SOFT] or task.soft_time_limit, own[_HARD] or task.time_limit)


@lru_cache(maxsize=1024)
def _limit(soft_seconds: float | None, hard_seconds: float | None) -> TimeLimit:
    """Make it once: it is asked for with each job, and hardly ever another one."""
    return TimeLimit(soft_seconds=soft_seconds, hard_seconds=hard_seconds)


def limits_of(requests: Sequence[Any]) -> list[TimeLimit]:
    """Return the limit of each of these jobs; just one where all have the same, as they do as a rule."""
    limits = [limit_of(request) for request in requests]
    first = limits[0]
    return limits if any(limit is not first for limit in limits) else [first]


def least_soft_seconds(limits: Iterable[TimeLimit]) -> float | None:
    """Return the first soft limit that any of these can meet."""
    return min([limit.soft_seconds for limit in limits if limit.soft_seconds is not None], default=None)


def widest(limits: Iterable[TimeLimit]) -> TimeLimit:
    """Return what items that are worked on together may take; which of them hangs is not known."""
    different = set(limits)
    if len(different) == 1:
        return different.pop()
    return TimeLimit(
        soft_seconds=_most(limit.soft_seconds for limit in different),
        hard_seconds=_most(limit.hard_seconds for limit in different),
    )


def _most(seconds: Iterable[float | None]) -> float | None:
    listed = tuple(seconds)
    return None if None in listed else max((one for one in listed if one is not None), default=None)


def is_header(timelimit: Any) -> bool:
    """Tell whether a message's header is what Celery writes: hard and soft seconds, or none."""
    if timelimit is None:
        return True
    return isinstance(timelimit, list) and len(timelimit) == 2 and all(map(_is_limit, timelimit))


def _is_limit(seconds: Any) -> bool:
    if seconds is None:
        return True
    return type(seconds) in {int, float} and math.isfinite(seconds) and seconds >= 0


def of_kind(kind: Kind, settings: Mapping[str, tuple[float, float]]) -> TimeLimit:
    """Return a kind's limit: as the node's settings say, else its own."""
    if kind.name not in settings:
        return kind.time_limit
    soft_seconds, hard_seconds = settings[kind.name]
    return TimeLimit(soft_seconds=soft_seconds, hard_seconds=hard_seconds)


def cause(overrun: Overrun, seconds: float | None) -> str:
    """Return e.g. "exceeded its hard time limit of 15 min"."""
    return f"exceeded its {overrun} time limit of {in_words(seconds or 0.0)}"


def failure(name: str, cause: str) -> Failure:
    """Return the failure of an item that has met its limit."""
    return Failure(
        name=name,
        reason=Reason.TIME_LIMIT,
        cause=f"the job {cause}",
        cure="Retry it if it should succeed; TIEPOINT_TIME_LIMITS gives its kind more time.",
    )


def in_words(seconds: float) -> str:
    """Return e.g. "90 s", "75 min", "15 h", "14 days": whole units only."""
    for unit, unit_seconds in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_seconds and seconds % unit_seconds == 0:
            return f"{seconds / unit_seconds:g} {unit}"
    return f"{seconds:g} s"
