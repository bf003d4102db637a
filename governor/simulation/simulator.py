"""Runs the scenario on one slot: as the planner would, or first in, first out.

Discrete events in the order of (time, insertion): arrivals, a tick each
millisecond, completions. Does not cover what is made of the figures
(:mod:`governor.simulation.tables`).
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from governor.planning.contract import Contract
from governor.planning.look_ahead import Candidate, Forecast, Stream, forecast, vetoing
from governor.planning.planner import Plan, Planner
from governor.planning.profile import CellKey
from governor.simulation.scenario import DURATION_NS, JITTER_NS, SOURCES, Frame, Source, frames

_TICK_NS = 1_000_000
_PERMILLE = 1000


@dataclass(slots=True, kw_only=True)
class Lane:
    """One stream in a run: what waits of it, what was delivered."""

    source: Source
    contract: Contract
    stream: Stream
    key: CellKey
    waiting: list[Frame] = field(default_factory=list)
    covered_windows: set[int] = field(default_factory=set)
    deadline_misses: int = 0

    @property
    def period_ns(self) -> int:
        """Return the period, which is also the length of a window."""
        return self.contract.period_ns or DURATION_NS

    def deliver(self, frame: Frame, now_ns: int) -> None:
        """Count a result: it covers its window unless it is too old."""
        if not self.contract.is_stale(frame.captured_ns, now_ns):
            self.covered_windows.add(now_ns // self.period_ns)
        if now_ns > self.contract.absolute_deadline_ns(frame.captured_ns):
            self.deadline_misses += 1

    def uncovered_permille(self) -> int:
        """Return the share of whole windows in which no fresh result came."""
        windows = DURATION_NS // self.period_ns
        covered = sum(window < windows for window in self.covered_windows)
        return _PERMILLE - _PERMILLE * covered // windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of one run."""

    detector_permille: int
    """Uncovered windows of the protected stream."""
    worst_high_permille: int
    """The larger of the other two."""
    vetoes: int
    dispatched: int
    detector_deadline_misses: int
    overruns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    lane: Lane
    frame: Frame
    started_ns: int
    plan: Plan | None


class Simulation:
    """One run of 20 s; what waits, what runs, what was counted."""

    def __init__(self, load_percent: int, seed: int) -> None:
        self._seed = seed
        self.lanes = tuple(_lane(source, load_percent) for source in SOURCES)
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._insertions = count()
        self._running: _Running | None = None
        self.vetoes = self.dispatched = self.overruns = 0
        self._lane_of = {lane.source.name: lane for lane in self.lanes}
        for frame in frames(load_percent, seed):
            self._at(frame.arrival_ns, lambda _now_ns, frame=frame: self._arrive(frame))  # type: ignore[misc]
        for tick_ns in range(0, DURATION_NS + 1, _TICK_NS):
            self._at(tick_ns, lambda _now_ns: None)

    def run(self) -> Figures:
        """Go through all events; return the figures."""
        while self._events:
            now_ns, _, happen = heapq.heappop(self._events)
            happen(now_ns)
            if self._running is None:
                self.start_next(now_ns)
        detector, *others = self.lanes
        return Figures(
            detector_permille=detector.uncovered_permille(),
            worst_high_permille=max(lane.uncovered_permille() for lane in others),
            vetoes=self.vetoes,
            dispatched=self.dispatched,
            detector_deadline_misses=detector.deadline_misses,
            overruns=self.overruns,
        )

    def accept(self, lane: Lane, frame: Frame) -> None:
        """Let a frame wait."""
        raise NotImplementedError

    def start_next(self, now_ns: int) -> None:
        """Start what may start."""
        raise NotImplementedError

    def completed(self, plan: Plan, duration_ns: int) -> bool:
        """Learn from a completion; return whether it overran its plan."""
        raise NotImplementedError

    def dispatch(self, lane: Lane, frame: Frame, now_ns: int, plan: Plan | None = None) -> None:
        """Give the slot to a frame."""
        lane.waiting.remove(frame)
        self.dispatched += 1
        self._running = _Running(lane=lane, frame=frame, started_ns=now_ns, plan=plan)
        self._at(now_ns + frame.duration_ns(self._seed), self._complete)

    def _at(self, time_ns: int, happen: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (time_ns, next(self._insertions), happen))

    def _arrive(self, frame: Frame) -> None:
        lane = self._lane_of[frame.source.name]
        lane.stream.note_arrival(frame.arrival_ns, frame.captured_ns)
        self.accept(lane, frame)

    def _complete(self, now_ns: int) -> None:
        done, self._running = self._running, None
        if done is None:
            return
        if done.plan is not None:
            self.overruns += self.completed(done.plan, now_ns - done.started_ns)
        done.lane.deliver(done.frame, now_ns)


class PlannedSimulation(Simulation):
    """The planner decides: the newest frame of each stream waits, stale ones are dropped, vetoes defer."""

    def __init__(self, load_percent: int, seed: int, planner: Planner) -> None:
        self._planner = planner
        super().__init__(load_percent, seed)

    def accept(self, lane: Lane, frame: Frame) -> None:
        """Let the newest frame wait: it takes the place of an older one."""
        lane.waiting = [frame]

    def completed(self, plan: Plan, duration_ns: int) -> bool:
        """Let the planner learn."""
        return self._planner.complete(plan, duration_ns)

    def start_next(self, now_ns: int) -> None:
        """Go through the candidates in their order; start the first that is neither stale nor vetoed."""
        candidates = [(lane, frame) for lane in self.lanes for frame in lane.waiting]
        candidates.sort(key=lambda pair: pair[0].contract.urgency(pair[1].captured_ns, pair[1].arrival_ns))
        for lane, frame in candidates:
            plan = self._plan(lane)
            if lane.contract.is_stale(frame.captured_ns, now_ns + plan.optimistic_ns):
                lane.waiting.remove(frame)
            elif self._is_vetoed(lane, plan, now_ns):
                self.vetoes += 1
            else:
                self.dispatch(lane, frame, now_ns, plan)
                return

    def _plan(self, lane: Lane) -> Plan:
        plan = self._planner.plan(lane.key)
        if plan is None:
            raise KeyError(lane.key)
        return plan

    def _is_vetoed(self, lane: Lane, plan: Plan, now_ns: int) -> bool:
        candidate = Candidate(
            service_class=lane.source.service_class, projected_end_ns=now_ns + plan.conservative_ns
        )
        return vetoing(candidate, self._forecasts(now_ns), _start_on_one_slot) is not None

    def _forecasts(self, now_ns: int) -> Iterable[Forecast]:
        for lane in self.lanes:
            expected = forecast(lane.stream, self._plan(lane).conservative_ns, now_ns)
            if expected is not None:
                yield expected


class FifoSimulation(Simulation):
    """Classes first, then first in, first out; a full queue refuses, and nothing is dropped or foreseen."""

    def __init__(self, load_percent: int, seed: int, capacity: int) -> None:
        self._capacity = capacity
        super().__init__(load_percent, seed)

    def accept(self, lane: Lane, frame: Frame) -> None:
        """Let a frame wait unless the stream's queue is full."""
        if len(lane.waiting) < self._capacity:
            lane.waiting.append(frame)

    def start_next(self, now_ns: int) -> None:
        """Start the oldest frame of the best class."""
        heads = [(lane, lane.waiting[0]) for lane in self.lanes if lane.waiting]
        if heads:
            lane, frame = min(heads, key=lambda head: (head[0].source.service_class, head[1].arrival_ns))
            self.dispatch(lane, frame, now_ns)


def _start_on_one_slot(arrival: Forecast, candidate: Candidate | None) -> int:
    """Return when a forecast job could start: the slot is free now, or when the candidate has ended."""
    if candidate is None:
        return arrival.earliest_start_ns
    return max(arrival.earliest_start_ns, candidate.projected_end_ns)


def _lane(source: Source, load_percent: int) -> Lane:
    contract = source.contract(load_percent)
    return Lane(
        source=source,
        contract=contract,
        stream=Stream(contract=contract, jitter_ns=JITTER_NS),
        key=CellKey(kind=source.name),
    )
