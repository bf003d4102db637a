"""Foresees the next job of periodic streams, and tells which batch would be in its way on this node.

Only where durations are planned. A veto defers: the batch's messages stay
where they are. Does not cover when an arrival is reckoned to come
(:mod:`governor.planning.look_ahead`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from governor.model import Grant, Resources
from governor.planning.contract import NEVER_NS, ServiceClass
from governor.planning.look_ahead import Candidate, Forecast, Stream, forecast, vetoing
from tasks.kind import Kind
from worker.claim import Head
from worker.contracts import NS_PER_MS
from worker.planning import NodePlanning

MOST_STREAMS = 64
"""Watched at a time; more never feed one node."""
_FORGOTTEN_AFTER_PERIODS = 100
_LEAST_JITTER_NS = NS_PER_MS
_NS_PER_S = 1_000_000_000

_Amounts = tuple[int, int, int, int]
"""Memory in bytes, CPU threads, GPU slots, IO slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """What a running batch holds, and until when, as far as it is planned."""

    grant: Grant
    projected_end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """Which arrival a batch would be in the way of."""

    kind: str
    service_class: ServiceClass
    arrives_in_ns: int

    def sentence(self) -> str:
        """Say it as a reason to wait."""
        name = self.service_class.name.lower().replace("_", " ")
        seconds = max(self.arrives_in_ns, 0) / _NS_PER_S
        return f"WAIT LOOK_AHEAD: left for the next {name} {self.kind}, expected in {seconds:.1f} s"


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One stream, and the job of it that was seen last."""

    kind: str
    stream: Stream
    identity: str = ""


@dataclass(slots=True, kw_only=True)
class LookAhead:
    """The streams that one node knows; main thread only."""

    planning: NodePlanning
    kinds: Mapping[str, Kind]
    vetoes: int = 0
    _streams: dict[tuple[str, str], _Watched] = field(default_factory=dict)

    def note(self, heads: Iterable[Head], now_ns: int, server_now_ms: int) -> None:
        """See which jobs have come: a stream is a kind and a key, above best effort, with a period."""
        for head in heads:
            contract = head.contract.contract
            if contract.period_ns is None or head.priority >= ServiceClass.BEST_EFFORT:
                continue
            watched = self._watched(head)
            if head.identity != watched.identity:
                watched.identity = head.identity
                age_ns = max(0, server_now_ms - head.contract.captured_ms(server_now_ms)) * NS_PER_MS
                _note_arrival(watched.stream, now_ns, now_ns - age_ns)
        self._forget_old(now_ns)

    def veto(
        self, head: Head, grant: Grant, running: Sequence[Occupied], free: Resources, now_ns: int
    ) -> Veto | None:
        """Tell whether a batch that has been reserved would be in the way of an arrival of a higher class.

        ``running`` are the other batches, ``free`` is what all of them, and this one, leave.
        """
        if not self._streams:
            return None
        plan = self.planning.plan(head.kind, items=grant.batch, others=len(running))
        if plan is None:
            return None
        end_ns = now_ns + plan.conservative_ns
        candidate = Candidate(service_class=_class_of(head), projected_end_ns=end_ns)
        room = _Room(running=running, free=_amounts(free), granted=_amounts(grant), need=self._need)
        arrival = vetoing(candidate, self._foreseen(len(running), now_ns), room.start_ns)
        if arrival is None:
            return None
        self.vetoes += 1
        return Veto(
            kind=self._kind_of(arrival),
            service_class=arrival.service_class,
            arrives_in_ns=arrival.arrival_ns - now_ns,
        )

    def _watched(self, head: Head) -> _Watched:
        name = (head.kind, head.contract.contract.supersede_key)
        watched = self._streams.pop(name, None)
        contract = replace(head.contract.contract, service_class=_class_of(head))
        if watched is None or watched.stream.contract != contract:
            stream = Stream(contract=contract, jitter_ns=_LEAST_JITTER_NS)
            watched = _Watched(kind=head.kind, stream=stream)
        self._streams[name] = watched  # The last one is the one that was seen last.
        if len(self._streams) > MOST_STREAMS:
            del self._streams[next(iter(self._streams))]
        return watched

    def _forget_old(self, now_ns: int) -> None:
        for name, watched in list(self._streams.items()):
            stream = watched.stream
            age_ns = now_ns - (stream.last_arrival_ns or now_ns)
            if age_ns > _FORGOTTEN_AFTER_PERIODS * (stream.contract.period_ns or 0):
                del self._streams[name]

    def _foreseen(self, others: int, now_ns: int) -> list[Forecast]:
        """Return the next arrival of each stream whose jobs can be planned."""
        found = []
        for watched in self._streams.values():
            plan = self.planning.plan(watched.kind, items=1, others=others)
            arrival = None if plan is None else forecast(watched.stream, plan.conservative_ns, now_ns)
            if arrival is not None:
                found.append(arrival)
        return found

    def _kind_of(self, arrival: Forecast) -> str:
        return next(known.kind for known in self._streams.values() if known.stream is arrival.stream)

    def _need(self, arrival: Forecast) -> _Amounts:
        estimate = self.kinds[self._kind_of(arrival)].estimate
        memory_bytes = estimate.memory_bytes(estimate.min_batch)
        return (memory_bytes, 1, estimate.gpu_slots, estimate.io_slots)


def _note_arrival(stream: Stream, now_ns: int, captured_ns: int) -> None:
    """Note an arrival, and by how much at most captures have been early or late."""
    period_ns = stream.contract.period_ns or 0
    if stream.last_arrival_ns is not None:
        off_ns = abs(captured_ns - stream.last_captured_ns - period_ns)
        # One that is missing is no jitter, and what was late once need not be again.
        if off_ns < period_ns // 2:
            stream.jitter_ns = max(off_ns, stream.jitter_ns - stream.jitter_ns // 8, _LEAST_JITTER_NS)
    stream.note_arrival(now_ns, captured_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """When there is room on this node, as far as it is planned."""

    running: Sequence[Occupied]
    free: _Amounts
    """What all running batches and the candidate leave."""
    granted: _Amounts
    """The candidate's."""
    need: Callable[[Forecast], _Amounts]

    def start_ns(self, arrival: Forecast, candidate: Candidate | None) -> int:
        """Return when an arrival could start, beside the candidate or without it (None)."""
        free, need = self.free, self.need(arrival)
        ends = [(one.projected_end_ns, _amounts(one.grant)) for one in self.running]
        if candidate is None:
            free = _sum(free, self.granted)
        else:
            ends.append((candidate.projected_end_ns, self.granted))
        if _fits(need, free):
            return arrival.earliest_start_ns
        for end_ns, given_back in sorted(ends):
            free = _sum(free, given_back)
            if _fits(need, free):
                return max(arrival.earliest_start_ns, end_ns)
        return NEVER_NS


def _class_of(head: Head) -> ServiceClass:
    """Return the class of a head's list; kombu has one behind best effort."""
    return ServiceClass(min(head.priority, ServiceClass.BEST_EFFORT))


def _amounts(held: Grant | Resources) -> _Amounts:
    return (held.memory_bytes, held.cpu_threads, held.gpu_slots, held.io_slots)


def _sum(first: _Amounts, second: _Amounts) -> _Amounts:
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3])


def _fits(need: _Amounts, free: _Amounts) -> bool:
    return all(wanted <= left for wanted, left in zip(need, free, strict=True))
