"""Draws a run's faults from its seed: when, which, for how long, whom. Pure."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

_PAIR_PROBABILITY = 0.3
"""So often a second fault happens at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault that is going to happen."""

    at_seconds: float
    name: str
    for_seconds: float
    """From the fault to its healing."""
    pick: float
    """0..1: who is hit, of those that can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely a fault is chosen, and the shortest and longest time until it is healed."""

    weight: float
    seconds: tuple[float, float]


def schedule(seed: int, chances: Mapping[str, Chance], *, seconds: float, rate: float) -> list[Planned]:
    """Return the faults of a run, in order: a Poisson process of ``rate`` moments per second."""
    rng = random.Random(seed)
    planned: list[Planned] = []
    at_seconds = rng.expovariate(rate)
    while at_seconds < seconds:
        faults = 2 if rng.random() < _PAIR_PROBABILITY else 1
        planned += [_draw(rng, chances, at_seconds) for _ in range(faults)]
        at_seconds += rng.expovariate(rate)
    return planned


def single(seed: str, chances: Mapping[str, Chance], *, seconds: float) -> list[Planned]:
    """Return one fault, at any moment within these seconds."""
    rng = random.Random(seed)
    return [_draw(rng, chances, rng.uniform(0, seconds))]


def _draw(rng: random.Random, chances: Mapping[str, Chance], at_seconds: float) -> Planned:
    (name,) = rng.choices(list(chances), [chance.weight for chance in chances.values()])
    for_seconds = rng.uniform(*chances[name].seconds)
    return Planned(at_seconds=at_seconds, name=name, for_seconds=for_seconds, pick=rng.random())
