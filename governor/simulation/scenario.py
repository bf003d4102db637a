"""Holds the simulated world: three periodic streams, when their jobs arrive and how long each really takes.

The same frame costs the same under every setting. Times in nanoseconds. Does
not know the planner (:mod:`governor.simulation.simulator`).
"""

import math
from dataclasses import dataclass
from itertools import count

from governor.planning.contract import Contract, ServiceClass
from governor.planning.profile import Durations
from governor.simulation.random_numbers import Pcg32, rotated_left

MICROSECOND_NS = 1_000
DURATION_NS = 20_000_000_000
JITTER_NS = 500 * MICROSECOND_NS
TRANSPORT_NS = 1_000 * MICROSECOND_NS
_ARRIVALS_STREAM = 1
_RUNTIME_STREAM = 7
"""Plus the variant; there is one, number 0."""
_NORMAL_P99 = 2.326347874040841
"""The 99th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One stream of the scenario as it would be at 100 % load."""

    name: str
    service_class: ServiceClass
    period_us: int
    median_us: int
    p99_us: int
    phase_us: int

    def period_ns(self, load_percent: int) -> int:
        """Return the period at a load, in whole microseconds rounded down."""
        return self.period_us * 100 // load_percent * MICROSECOND_NS

    def contract(self, load_percent: int) -> Contract:
        """Return the contract: due after one and a half periods, worthless after two."""
        period_ns = self.period_ns(load_percent)
        return Contract(
            service_class=self.service_class,
            period_ns=period_ns,
            deadline_ns=3 * period_ns // 2,
            max_age_ns=2 * period_ns,
        )

    @property
    def durations(self) -> Durations:
        """Return what a right profile says; nobody asks for its p95 before the cells are full."""
        p99_ns = self.p99_us * MICROSECOND_NS
        return Durations(p50_ns=self.median_us * MICROSECOND_NS, p95_ns=p99_ns, p99_ns=p99_ns)


SOURCES = (
    Source(
        name="detector",
        service_class=ServiceClass.PROTECTED,
        period_us=23_000,
        median_us=14_916,
        p99_us=17_470,
        phase_us=0,
    ),
    Source(
        name="pose",
        service_class=ServiceClass.HIGH,
        period_us=23_000,
        median_us=3_987,
        p99_us=5_506,
        phase_us=7_000,
    ),
    Source(
        name="depth",
        service_class=ServiceClass.HIGH,
        period_us=46_000,
        median_us=7_908,
        p99_us=9_534,
        phase_us=14_000,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One job of a stream."""

    source: Source
    number: int
    """From 1, over all streams."""
    captured_ns: int

    @property
    def arrival_ns(self) -> int:
        """Return when the queue sees it."""
        return self.captured_ns + TRANSPORT_NS

    def duration_ns(self, seed: int) -> int:
        """Return how long it really takes: log-normal, between half a median and three p99."""
        right = self.source.durations
        sigma = math.log(right.p99_ns / right.p50_ns) / _NORMAL_P99
        generator = Pcg32(seed ^ rotated_left(self.number, 17), _RUNTIME_STREAM)
        drawn_ns = int(right.p50_ns * math.exp(sigma * generator.normal()))
        return min(max(drawn_ns, right.p50_ns // 2), 3 * right.p99_ns)


def frames(load_percent: int, seed: int) -> list[Frame]:
    """Return all frames of a run, stream by stream; the jitter does not add up from frame to frame."""
    generator = Pcg32(seed, _ARRIVALS_STREAM)
    made: list[Frame] = []
    for source in SOURCES:
        for nominal_ns in count(source.phase_us * MICROSECOND_NS, source.period_ns(load_percent)):
            # Drawn for the frame after the end as well: the streams share one generator.
            jitter_ns = generator.below(2 * JITTER_NS + 1) - JITTER_NS
            if nominal_ns >= DURATION_NS:
                break
            captured_ns = max(0, nominal_ns + jitter_ns)
            made.append(Frame(source=source, number=len(made) + 1, captured_ns=captured_ns))
    return made
