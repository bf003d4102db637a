"""Forecasts the next arrival of periodic streams, and vetoes a batch that would be in its way.

A veto defers: the job stays where it is. Integers only, nanoseconds of one
monotonic clock. Does not cover what resources a batch takes: whoever asks
projects when a stream's next job could start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from governor.planning.contract import NEVER_NS, Contract, ServiceClass


@dataclass(slots=True, kw_only=True)
class Stream:
    """What is known of a stream of jobs that come periodically."""

    contract: Contract
    jitter_ns: int
    """Envelope: a capture is at most this much early or late."""
    last_arrival_ns: int | None = None
    last_captured_ns: int = 0

    def note_arrival(self, now_ns: int, captured_ns: int) -> None:
        """Note that a job has arrived."""
        self.last_arrival_ns = now_ns
        self.last_captured_ns = captured_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The next arrival of one stream."""

    stream: Stream
    service_class: ServiceClass
    arrival_ns: int
    """When it is reckoned to come; one that is overdue moves on with the clock, within its window."""
    earliest_start_ns: int
    deadline_ns: int
    plan_ns: int

    def is_feasible(self, start_ns: int) -> bool:
        """Tell whether a start at that time meets the deadline."""
        return start_ns + self.plan_ns <= self.deadline_ns


def forecast(stream: Stream, plan_ns: int, now_ns: int) -> Forecast | None:
    """Return a stream's next arrival; None for best effort, without a period, or before the first arrival."""
    contract, last_ns = stream.contract, stream.last_arrival_ns
    if contract.service_class is ServiceClass.BEST_EFFORT or contract.period_ns is None or last_ns is None:
        return None
    expected_ns = last_ns + contract.period_ns
    captured_ns = min(stream.last_captured_ns, last_ns) + contract.period_ns
    deadline_ns = NEVER_NS if contract.deadline_ns is None else contract.deadline_ns
    delay_ns = expected_ns - captured_ns
    window_ns = max(min(delay_ns, deadline_ns), 2 * stream.jitter_ns)
    arrival_ns = expected_ns + min(max(now_ns - expected_ns, 0), window_ns)
    return Forecast(
        stream=stream,
        service_class=contract.service_class,
        arrival_ns=arrival_ns,
        earliest_start_ns=max(expected_ns, now_ns),
        deadline_ns=arrival_ns + max(deadline_ns - delay_ns, plan_ns),
        plan_ns=plan_ns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A batch that could start now."""

    service_class: ServiceClass
    projected_end_ns: int


ProjectedStart = Callable[[Forecast, Candidate | None], int]
"""When the job of a forecast could start, without the candidate (None) or beside it."""


def vetoing(
    candidate: Candidate, forecasts: Iterable[Forecast], projected_start_ns: ProjectedStart
) -> Forecast | None:
    """Return the first arrival of a higher class that a candidate would make miss its deadline, if any.

    Only one that could meet it without the candidate counts, and only one
    that is reckoned to come while the candidate runs.
    """
    in_its_time = sorted(
        (
            arrival
            for arrival in forecasts
            if arrival.service_class < candidate.service_class
            and arrival.arrival_ns < candidate.projected_end_ns
        ),
        key=lambda arrival: arrival.arrival_ns,
    )
    for arrival in in_its_time:
        is_feasible_alone = arrival.is_feasible(projected_start_ns(arrival, None))
        if is_feasible_alone and not arrival.is_feasible(projected_start_ns(arrival, candidate)):
            return arrival
    return None
