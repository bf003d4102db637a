"""Holds the live streams of a ramp: when their photos come, which of their windows were covered.

The same three as in the simulation (:mod:`governor.simulation.scenario`), of
real kinds and as slow as those are. Pure; does not cover sending and
receiving (:mod:`worker.ramp_scene`).
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from governor.planning.contract import ServiceClass

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStream:
    """One stream."""

    name: str
    kind: str
    service_class: ServiceClass
    periods: int
    """Its period, in periods of the fastest."""
    phase: float
    """Its first photo, in periods of the fastest."""
    max_image_size_px: int
    """Of the picture that features are found in: what makes its jobs as long as they are."""


STREAMS = (
    LiveStream(
        name="detector",
        kind="features.extract.rootsift",
        service_class=ServiceClass.PROTECTED,
        periods=1,
        phase=0.0,
        max_image_size_px=240,
    ),
    LiveStream(
        name="pose",
        kind="features.extract",
        service_class=ServiceClass.HIGH,
        periods=1,
        phase=7 / 23,
        max_image_size_px=320,
    ),
    LiveStream(
        name="depth",
        kind="features.extract.sift",
        service_class=ServiceClass.HIGH,
        periods=2,
        phase=14 / 23,
        max_image_size_px=200,
    ),
)
_JITTER, _TRANSPORT = 0.5 / 23, 1 / 23
"""Of the fastest period, as in the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One photo of a stream; times in milliseconds since the streams' start."""

    stream: LiveStream
    captured_ms: float
    arrival_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A frame's result."""

    frame: Frame
    completed_ms: float


LONGEST_PERIODS = max(stream.periods for stream in STREAMS)


def due_in(period_number: int) -> list[LiveStream]:
    """Return the streams that bring a photo in a period of the fastest."""
    return [stream for stream in STREAMS if period_number % stream.periods == 0]


def work_ms(p50_ns: Mapping[str, int]) -> float:
    """Return how long the medians of all take that comes in a period of the fastest stream, on average."""
    return sum(p50_ns[stream.kind] / stream.periods for stream in STREAMS) / NS_PER_MS


def period_ms(capacity: float, load_percent: int) -> int:
    """Return the fastest stream's period at a load, in whole milliseconds as headers tell it."""
    return max(round(capacity * 100 / load_percent), 1)


def frames(period: int, cycles: int, seed: int) -> list[Frame]:
    """Return what comes in so many periods, in order of arrival.

    Captures are early or late by up to 1/46 of the period, not cumulatively; each arrives 1/23 later.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for stream in STREAMS:
        for number in range(cycles // stream.periods):
            due = stream.phase + number * stream.periods + draw.uniform(-_JITTER, _JITTER)
            captured_ms = max(due, 0.0) * period
            arrival_ms = captured_ms + _TRANSPORT * period
            found.append(Frame(stream=stream, captured_ms=captured_ms, arrival_ms=arrival_ms))
    return sorted(found, key=lambda frame: frame.arrival_ms)


def uncovered_permille(stream: LiveStream, deliveries: Iterable[Delivery], period: int, cycles: int) -> int:
    """Return the share of a stream's periods in which no result came that was at most two periods old."""
    own_period, windows = period * stream.periods, cycles // stream.periods
    covered = {
        int(delivery.completed_ms // own_period)
        for delivery in deliveries
        if delivery.frame.stream is stream
        and delivery.completed_ms - delivery.frame.captured_ms <= 2 * own_period
    }
    return 1000 - 1000 * sum(window < windows for window in covered) // windows
