"""Measures a simulated cluster on one server: busy under load, idle, and woken by one message at a time.

A node's time counts as busy by its threads: from the moment the messages are
there until none waits any more. What a batch takes is slept, so the clock
stays right on few cores; but all main processes share these cores, and a node
that is late for want of them counts as not busy.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from tests.bench.queue_kinds import kind_name
from tests.bench.queue_messages import Template
from tests.bench.scale_cluster import Place, ScaleError, SimulatedCluster, simulated_cluster
from tests.bench.scale_server import Usage, key_names, usage
from worker import keys

QUEUE = kind_name(1)
_ASIDE = "bench:aside"
_JOB_SECONDS = (2.0, 3.0)
_TRICKLE_JOB_SECONDS = 0.01
_LEAST_GAP_SECONDS = 0.15
_DEADLINE_SECONDS = 600.0
_SHORT_LEASE_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How large a cluster is simulated, and what it is given."""

    nodes: int
    processes: int
    jobs_per_thread: int = 10
    """Under load."""
    messages: int = 100
    """Of the trickle."""
    idle_seconds: float = 10.0
    gaps_per_second: float = 4.0
    """Of the trickle: the rate of the part of a gap that is left to chance."""
    settle_seconds: float = 2.0
    """After this a cluster that was just started has looked at everything."""
    seed: int = 0
    job_seconds: tuple[float, float] = _JOB_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What the server holds after the last node has left, beside what it held before the first came."""

    keys: tuple[str, ...]
    memory_bytes: int
    tracked_items: int
    """Of that memory: who has read which key. A server forgets it when the key changes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """A full queue, served by all nodes."""

    nodes: int
    threads: int
    jobs: int
    done_once: int
    busy_ratio: float
    seconds_with_work: float
    claims_per_message: float
    empty_claims: int
    wake_ups_per_message: float
    looks_per_message: float
    server_cpu_percent: float
    """Of one core, while messages waited."""
    leftovers: Leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrickleFigures:
    """One message at a time for a cluster of which every node idles."""

    nodes: int
    messages: int
    done_once: int
    claims_per_message: float
    wake_ups_per_message: float
    looks_per_message: float
    start_p50_ms: float
    start_p99_ms: float
    most_on_one_node: int
    idle_server_cpu_percent: float
    """Before the first message."""
    idle_commands_per_second: float
    leftovers: Leftovers


class Messages:
    """Makes messages whose jobs sleep, each with its number."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._template = Template(place.broker_url, place.server, QUEUE)

    def text(self, number: int, seconds: float) -> str:
        """Return one message."""
        return self._template.copy(number=number, seconds=seconds)

    def put_aside(self, texts: Sequence[str]) -> None:
        """Send messages to where nobody reads."""
        self._place.server.delete(_ASIDE)
        for begin in range(0, len(texts), 500):
            self._place.server.lpush(_ASIDE, *texts[begin : begin + 500])

    def offer(self) -> None:
        """Let all that were put aside wait at once."""
        self._place.server.rename(_ASIDE, QUEUE)


def measure_load(place: Place, effort: Effort) -> LoadFigures:
    """Let a full queue be served."""
    messages, chance = Messages(place), random.Random(effort.seed)
    before = _held_without_nodes(place, messages)
    with simulated_cluster(place, effort.nodes, effort.processes) as cluster:
        jobs = cluster.threads * effort.jobs_per_thread
        messages.put_aside([messages.text(job, chance.uniform(*effort.job_seconds)) for job in range(jobs)])
        time.sleep(effort.settle_seconds)
        begin, begin_ns = usage(place.server), time.monotonic_ns()
        messages.offer()
        _wait_until_empty(cluster, QUEUE)
        end, end_ns = usage(place.server), time.monotonic_ns()
        _wait_until_empty(cluster, *_inflight(place))
        cluster.end()
    seconds = (end_ns - begin_ns) / 1e9
    return LoadFigures(
        nodes=effort.nodes,
        threads=cluster.threads,
        jobs=jobs,
        done_once=_done_once(cluster),
        busy_ratio=busy_ratio(cluster.spans(), cluster.threads, begin_ns, end_ns),
        seconds_with_work=seconds,
        claims_per_message=cluster.counted("claims") / jobs,
        empty_claims=cluster.counted("empty_claims"),
        wake_ups_per_message=cluster.counted("wake_ups") / jobs,
        looks_per_message=end.calls_since(begin, "exists") / jobs,
        server_cpu_percent=100 * (end.cpu_seconds - begin.cpu_seconds) / seconds,
        leftovers=_leftovers(place, before),
    )


def nodes_of_each_two(place: Place, rounds: int, seconds: float) -> list[int]:
    """Give two idle nodes two jobs at once, over and over; return on how many nodes each two have run."""
    messages = Messages(place)
    with simulated_cluster(place, 2, 1, sizes=(4,), lease_seconds=_SHORT_LEASE_SECONDS) as cluster:
        time.sleep(_SHORT_LEASE_SECONDS / 2)  # The first node hears of the second when it renews.
        for number in range(rounds):
            messages.put_aside([messages.text(2 * number + job, seconds) for job in range(2)])
            messages.offer()
            _wait_until_empty(cluster, QUEUE, *_inflight(place))
        cluster.end()
    ran_on: dict[int, set[str]] = {}
    for span in cluster.spans():
        ran_on.setdefault(span["numbers"][0] // 2, set()).add(span["node"])
    return [len(nodes) for _, nodes in sorted(ran_on.items())]


def measure_trickle(place: Place, effort: Effort) -> TrickleFigures:
    """Send one message at a time, each long after the last has been dealt with."""
    messages, chance = Messages(place), random.Random(effort.seed)
    before = _held_without_nodes(place, messages)
    sent_ns = []
    with simulated_cluster(place, effort.nodes, effort.processes) as cluster:
        time.sleep(effort.settle_seconds)
        idle = _idle(place, effort.idle_seconds)
        begin = usage(place.server)
        for number in range(effort.messages):
            text = messages.text(number, _TRICKLE_JOB_SECONDS)
            sent_ns.append(time.monotonic_ns())
            place.server.lpush(QUEUE, text)
            _wait_until_empty(cluster, QUEUE)
            time.sleep(_LEAST_GAP_SECONDS + chance.expovariate(effort.gaps_per_second))
        end = usage(place.server)
        cluster.end()
    latencies_ms = sorted((span["start_ns"] - sent_ns[span["numbers"][0]]) / 1e6 for span in cluster.spans())
    percentiles = statistics.quantiles(latencies_ms, n=100, method="inclusive")
    return TrickleFigures(
        nodes=effort.nodes,
        messages=effort.messages,
        done_once=_done_once(cluster),
        claims_per_message=cluster.counted("claims") / effort.messages,
        wake_ups_per_message=cluster.counted("wake_ups") / effort.messages,
        looks_per_message=end.calls_since(begin, "exists") / effort.messages,
        start_p50_ms=percentiles[49],
        start_p99_ms=percentiles[98],
        most_on_one_node=max(len(node["spans"]) for node in cluster.told),
        idle_server_cpu_percent=idle[0],
        idle_commands_per_second=idle[1],
        leftovers=_leftovers(place, before),
    )


def busy_ratio(spans: Sequence[dict[str, Any]], threads: int, begin_ns: int, end_ns: int) -> float:
    """Return the share of all nodes' thread time between two moments in which a batch had the thread."""
    busy_ns: int = sum(
        max(0, min(span["end_ns"], end_ns) - max(span["start_ns"], begin_ns)) * span["threads"]
        for span in spans
    )
    return busy_ns / (threads * (end_ns - begin_ns))


def _done_once(cluster: SimulatedCluster) -> int:
    """Return how many jobs were run exactly once.

    Raises:
        ScaleError: one was run twice.
    """
    numbers = [number for span in cluster.spans() for number in span["numbers"]]
    if len(set(numbers)) != len(numbers):
        raise ScaleError("a job was run twice")
    return len(numbers)


def _idle(place: Place, seconds: float) -> tuple[float, float]:
    """Return the percent of a core that the server uses while nothing waits, and its commands per second."""
    begin = usage(place.server)
    time.sleep(seconds)
    end = usage(place.server)
    commands = sum(end.calls.values()) - sum(begin.calls.values())
    return 100 * (end.cpu_seconds - begin.cpu_seconds) / seconds, commands / seconds


def _held_without_nodes(place: Place, messages: Messages) -> tuple[set[str], Usage]:
    """Return what the server holds once a first node has come and gone: its scripts, and the tick."""
    with simulated_cluster(place, 1, 1) as cluster:
        messages.put_aside([messages.text(0, 0.0)])
        messages.offer()
        _wait_until_empty(cluster, QUEUE, *_inflight(place))
        cluster.end()
    return key_names(place.server), usage(place.server)


def _leftovers(place: Place, before: tuple[set[str], Usage]) -> Leftovers:
    names, then = before
    now = usage(place.server)
    return Leftovers(
        keys=tuple(sorted(key_names(place.server) - names)),
        memory_bytes=now.memory_bytes - then.memory_bytes,
        tracked_items=now.tracked_items - then.tracked_items,
    )


def _inflight(place: Place) -> list[str]:
    leases = cast("list[bytes]", place.server.zrange(keys.LEASES, 0, -1))
    return [keys.inflight(lease.decode()) for lease in leases]


def _wait_until_empty(cluster: SimulatedCluster, *names: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while cluster.place.server.exists(*names):
        cluster.check()
        if time.monotonic() > deadline:
            raise ScaleError("messages wait, and nobody takes them")
        time.sleep(0.01)


def to_dict(figures: LoadFigures | TrickleFigures) -> dict[str, Any]:
    """Return figures as JSON has them, rounded."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(figures).items()
    }
