"""Measures the queue beside stock Celery: no-op jobs, on one Redis server, by turns.

``python -m tests.bench.queue [--json] [--pairs N] [--jobs N]``. Two workers
run all the time, each with two children, JSON, acks late, no results: stock
Celery prefork with its default prefetch multiplier of 4, and ours with the
profile ``dedicated``. One idles while the other is measured. Measured are:

* Throughput. Messages that a stock client has made wait in a list that nobody
  reads. The clock starts when one RENAME makes it the worker's queue, and ends
  when the queue is empty and nothing is unacknowledged, asked every 3 ms in
  the same way for both (stock: ``unacked``; ours: ``inflight``): a job is over
  when a crash would not repeat it. A pair is one queue each, in an order that
  alternates; its ratio is our jobs/s by stock's. Printed is the median.
* The same with task events on in both, as a monitor turns them on. Stock
  workers start with them off, and ``ratio_to_stock`` is with them off in both.
* Latency. One job at a time, at random gaps, to a worker that idles: from
  before its LPUSH to the first line of its body, both by CLOCK_MONOTONIC.
* Idle CPU: all processes of a worker while nothing waits.

The same body runs on both sides. What differs is what each does when it is
used: ours reserves memory for each batch, measures its peak and renews a
lease; stock traces each job and records it by two commands of its own.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from celery import Celery

from tests.bench.queue_kinds import MAX_BATCHES, kind_name
from tests.bench.queue_messages import Template
from tests.bench.queue_side import Drained, Fifo, QueueBenchError, WorkerSide
from tests.bench.queue_stock import QUEUE as STOCK_QUEUE
from tests.bench.queue_workers import governed_worker, stock_worker
from worker.connections import plain_client
from worker.embedded import embedded_server

_SIDES = ("stock", "governed")
_GAP_SECONDS = (0.02, 0.08)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    pairs: int
    jobs: int
    samples: int
    idle_seconds: float
    with_events: bool
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One queue, the message of its jobs, and the worker that serves it."""

    side: WorkerSide
    queue: str
    template: Template

    def drain(self, jobs: int) -> Drained:
        """Serve a full queue."""
        return self.side.drain(self.queue, self.template, jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One full queue each."""

    stock: Drained
    governed: Drained

    @property
    def ratio(self) -> float:
        """Return our throughput by stock's."""
        return self.governed.jobs_per_second / self.stock.jobs_per_second


class Bench:
    """One server and two running workers, until the stack is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiepoint-bench-")))
        self._broker_url = stack.enter_context(embedded_server()).broker_url
        self._server = plain_client(self._broker_url.replace("redis+socket://", "unix://", 1))
        stack.callback(self._server.close)
        place = (self._broker_url, self._server, self._folder)
        self.sides = {
            "stock": stack.enter_context(stock_worker(*place)),
            "governed": stack.enter_context(governed_worker(*place)),
        }
        self.fifo = Fifo(self._folder / "started")

    def lane(self, side: str, queue: str, **arguments: str) -> Lane:
        """Return a queue of a worker."""
        template = Template(self._broker_url, self._server, queue, **arguments)
        return Lane(side=self.sides[side], queue=queue, template=template)

    def server_version(self) -> str:
        """Return what the server calls itself."""
        info: Any = self._server.info("server")
        return str(info.get("valkey_version", info["redis_version"]))

    def set_task_events(self, *, enabled: bool) -> None:
        """Have both workers send the events of their jobs, or not."""
        with Celery(broker=self._broker_url, set_as_current=False) as client:
            control: Any = client.control
            replies = (control.enable_events if enabled else control.disable_events)(reply=True, timeout=5)
        if len(replies) != len(_SIDES):
            raise QueueBenchError(f"{len(replies)} of {len(_SIDES)} workers have answered")


def throughput(bench: Bench, max_batch: int, effort: Effort) -> list[Pair]:
    """Return what both took for full queues, pair by pair; the first of each side is not counted."""
    stock = bench.lane("stock", STOCK_QUEUE)
    governed = bench.lane("governed", kind_name(max_batch))
    pairs = []
    for number in range(effort.pairs + 1):
        order = [stock, governed] if number % 2 else [governed, stock]
        drained = {lane.queue: lane.drain(effort.jobs) for lane in order}
        pairs.append(Pair(stock=drained[stock.queue], governed=drained[governed.queue]))
    return pairs[1:]


def latencies_ms(bench: Bench, effort: Effort) -> dict[str, list[float]]:
    """Return the milliseconds from submitting to starting a job, of both sides by turns."""
    gaps = random.Random(0)
    note = str(bench.fifo.path)
    lanes = {
        "stock": bench.lane("stock", STOCK_QUEUE, note=note),
        "governed": bench.lane("governed", kind_name(1), note=note),
    }
    found: dict[str, list[float]] = {side: [] for side in _SIDES}
    for _ in range(effort.samples):
        for side, lane in lanes.items():
            time.sleep(gaps.uniform(*_GAP_SECONDS))
            found[side].append(lane.side.seconds_to_start(lane.queue, lane.template, bench.fifo) * 1e3)
    return found


def idle_cpu_percent(bench: Bench, effort: Effort) -> dict[str, float]:
    """Return what both use of one core while nothing waits."""
    before = {side: sum(bench.sides[side].cpu_seconds()) for side in _SIDES}
    started = time.monotonic()
    time.sleep(effort.idle_seconds)
    seconds = time.monotonic() - started
    return {side: 100 * (sum(bench.sides[side].cpu_seconds()) - before[side]) / seconds for side in _SIDES}


def measure(effort: Effort) -> dict[str, Any]:
    """Measure everything and return the report.

    Raises:
        QueueBenchError: a worker has hung or ended.
    """
    with ExitStack() as stack:
        bench = Bench(stack)
        off = {size: throughput(bench, size, effort) for size in effort.sizes}
        idle = idle_cpu_percent(bench, effort)
        latency = latencies_ms(bench, effort)
        on: dict[int, list[Pair]] = {}
        if effort.with_events:
            bench.set_task_events(enabled=True)
            on = {size: throughput(bench, size, effort) for size in effort.sizes}
        return {
            "ratio_to_stock": median_ratios(off),
            "ratio_to_stock_with_events": median_ratios(on),
            **latency_report(latency),
            "idle_cpu_percent": round(idle["governed"], 2),
            "stock_idle_cpu_percent": round(idle["stock"], 2),
            "events_off": {str(size): _details(pairs) for size, pairs in off.items()},
            "events_on": {str(size): _details(pairs) for size, pairs in on.items()},
            "effort": asdict(effort),
            "versions": _versions(bench),
        }


def median_ratios(measured: dict[int, list[Pair]]) -> dict[str, float]:
    """Return our throughput by stock's for each largest batch."""
    return {
        str(size): round(statistics.median(pair.ratio for pair in pairs), 2)
        for size, pairs in measured.items()
    }


def _details(pairs: Sequence[Pair]) -> dict[str, Any]:
    ratios = sorted(pair.ratio for pair in pairs)
    return {
        "ratios": [round(ratio, 2) for ratio in ratios],
        "stock": _side_details([pair.stock for pair in pairs]),
        "governed": _side_details([pair.governed for pair in pairs]),
    }


def _side_details(drained: Sequence[Drained]) -> dict[str, int]:
    """Return medians; CPU time disturbs less than the clock when others use the machine."""
    return {
        "jobs_per_second": round(statistics.median(one.jobs_per_second for one in drained)),
        "main_cpu_us_per_job": round(
            statistics.median(one.main_cpu_seconds / one.jobs for one in drained) * 1e6
        ),
        "pool_cpu_us_per_job": round(
            statistics.median(one.pool_cpu_seconds / one.jobs for one in drained) * 1e6
        ),
    }


def latency_report(latency: dict[str, list[float]]) -> dict[str, float]:
    """Return the percentiles of both sides, stock's under names of their own."""
    report = {}
    for side, prefix in (("governed", ""), ("stock", "stock_")):
        percentiles = statistics.quantiles(latency[side], n=100, method="inclusive")
        report[f"{prefix}idle_submit_to_start_p50_ms"] = round(percentiles[49], 2)
        report[f"{prefix}idle_submit_to_start_p99_ms"] = round(percentiles[98], 2)
    return report


def _versions(bench: Bench) -> dict[str, str]:
    names = ("celery", "kombu", "billiard", "redis")
    return {
        "python": sys.version.split()[0],
        **{name: version(name) for name in names},
        "server": bench.server_version(),
    }


def _effort(arguments: Sequence[str]) -> tuple[Effort, bool]:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queue")
    parser.add_argument("--json", action="store_true", help="print one JSON object, indented otherwise")
    parser.add_argument("--pairs", type=int, default=9, help="measured pairs per batch size")
    parser.add_argument("--jobs", type=int, default=2000, help="jobs of a full queue")
    parser.add_argument("--samples", type=int, default=300, help="jobs of the latency, each side")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--sizes", type=int, nargs="+", choices=MAX_BATCHES, default=MAX_BATCHES)
    parser.add_argument("--no-events", action="store_true", help="leave out the pairs with task events on")
    read = parser.parse_args(arguments)
    effort = Effort(
        pairs=read.pairs,
        jobs=read.jobs,
        samples=read.samples,
        idle_seconds=read.idle_seconds,
        with_events=not read.no_events,
        sizes=tuple(read.sizes),
    )
    return effort, read.json


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    effort, on_one_line = _effort(arguments)
    try:
        report = measure(effort)
    except QueueBenchError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the bench's output
        return 1
    print(json.dumps(report, indent=None if on_one_line else 2))  # noqa: T201 - the bench's output
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
