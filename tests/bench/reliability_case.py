"""Holds what a case of the reliability bench is: a play for both sorts, and what ours must come to."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.reliability_log import Tally
from tests.bench.reliability_nodes import TIEPOINT
from tests.bench.reliability_scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What has become of the jobs of one play, and what else was measured."""

    tally: Tally
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self.tally), **self.figures}


def conclude(scene: Scene, **figures: Any) -> Result:
    """Count what has become of the jobs at the end of a play."""
    if scene.sort is TIEPOINT:
        figures["unaccounted"] = scene.jobs + scene.plans - scene.counts().total
    return Result(tally=scene.tally(), figures=figures)


Checks = dict[str, bool]
"""What must be so, in words, and whether it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that happens to queues."""

    letter: str
    title: str
    play: Callable[[Scene], Result]
    checks: Callable[[Result], Checks]
    """For ours; stock is told, and not judged."""
    stock_play: Callable[[Scene], Result] | None = None
    """Where stock acts less of it, for it would take too long."""
    stock_variants: Mapping[str, Callable[[Scene], Result]] = field(default_factory=dict)
    """Plays of stock with other settings, by what they are called."""

    def faults(self, result: Result) -> list[str]:
        """Return what is not as it must be."""
        return [what for what, holds in self.checks(result).items() if not holds]


def nothing_lost(result: Result) -> Checks:
    """Return what holds in every case: each job is done or given up, and counts once."""
    tally = result.tally
    return {
        "no job is lost": tally.lost == 0,
        "no job is left over": tally.waiting == 0,
        "no result is taken twice": tally.doubled == 0,
        "the queue's own counts add up to the jobs that were sent": result.figures["unaccounted"] == 0,
    }
