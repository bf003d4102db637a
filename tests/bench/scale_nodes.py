"""Simulates some of the nodes of a large cluster in one process: ``python -m tests.bench.scale_nodes ORDER``.

Of each node everything is real that talks to Redis or decides: lease, puller,
view of the queues, intake, governor, reception, outbox. Simulated are the
machine (its size, its memory), Celery's reception, and the children: a batch
sleeps in a timer for as long as its first payload says. All nodes of a process
share one event loop. It ends when its input does, and tells what it has seen.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kombu.asynchronous import Hub

from governor import policy as policies
from governor.governor import Governor
from governor.model import Snapshot
from tests.bench import queue_kinds
from worker.frames import BatchReport
from worker.node import Node
from worker.pool_child import PoolBatch
from worker.puller import Puller
from worker.settings import Settings

GIB = 2**30
DEFAULT_LEASE_SECONDS = 10.0
_MEMORY_PER_THREAD_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which nodes one process simulates."""

    broker_url: str
    folder: str
    first: int
    """The number of its first node, which names it."""
    threads: tuple[int, ...]
    """The size of each."""
    lease_seconds: float

    def to_text(self) -> str:
        """Return it as an argument of the process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Order":
        """Read what :meth:`to_text` wrote."""
        values = json.loads(text)
        return cls(**{**values, "threads": tuple(values["threads"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One batch on one node, by CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    threads: int
    numbers: tuple[int, ...]
    """Of its jobs."""


class SimulatedNode(Node):
    """A machine of so many threads, whose memory nobody else uses."""

    def __init__(self, settings: Settings, threads: int) -> None:
        super().__init__(settings)
        memory_bytes = threads * _MEMORY_PER_THREAD_BYTES
        self.profile = replace(self.profile, logical_cpus=threads, memory_total_bytes=memory_bytes, gpu=None)
        policy = policies.named(policies.PolicyName.DEDICATED, self.profile)
        self.policy = replace(policy, cpu_reserve_threads=0)
        self.governor = Governor(self.profile, self.policy, now_ns=time.monotonic_ns, capture=self._capture)

    def _capture(self) -> Snapshot:
        memory_bytes = self.profile.memory_total_bytes
        return Snapshot(
            captured_at_ns=time.monotonic_ns(),
            memory_available_bytes=memory_bytes,
            memory_free_bytes=memory_bytes,
            swap_free_bytes=0,
        )


class SleepingPool:
    """Stands in for the pool of children: each batch sleeps, and comes to what it was to come to."""

    def __init__(self, children: int, hub: Any) -> None:
        self.num_processes = self.idle_children = children
        self.spans: list[Span] = []
        self._hub = hub

    def submit(self, batch: PoolBatch) -> None:
        """Start a batch."""
        self.idle_children -= 1
        batch.on_started(0)
        payload = batch.request.payloads[0]
        self._hub.call_later(float(payload["seconds"]), self._end, batch, time.monotonic_ns())

    def _end(self, batch: PoolBatch, start_ns: int) -> None:
        self.idle_children += 1
        payloads = batch.request.payloads
        self.spans.append(
            Span(
                start_ns=start_ns,
                end_ns=time.monotonic_ns(),
                threads=batch.request.grant.cpu_threads,
                numbers=tuple(int(payload["number"]) for payload in payloads),
            )
        )
        for index in range(len(payloads)):
            batch.on_outcome(index, {"action": "done"})
        batch.on_report(BatchReport(peak_bytes=0, recorded_items=len(payloads), retire=False))


class UncheckedRequest:
    """Stands in for Celery's request of a job."""

    acknowledged = False
    time_limits = (None, None)
    task = SimpleNamespace(time_limit=None, soft_time_limit=None)

    def on_accepted(self, *_: Any) -> None:
        """Tell nobody."""

    on_success = on_accepted
    send_event = on_accepted


def _receive(_message: Any) -> list[Any]:
    return [UncheckedRequest()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One simulated node at work."""

    name: str
    node: SimulatedNode
    pool: SleepingPool
    puller: Puller

    def told(self) -> dict[str, Any]:
        """Return what it has seen."""
        return {
            "name": self.name,
            "threads": self.node.cpu_budget_threads,
            "counters": self.puller.counters(),
            "spans": [asdict(span) for span in self.pool.spans],
        }


def seated(order: Order, number: int, threads: int, hub: Any) -> Seat:
    """Start one node: its lease is held, it pulls what any node pulls."""
    name = f"node-{number:03}"
    settings = Settings(
        broker_url=order.broker_url,
        store=Path(order.folder),
        name=name,
        lease_seconds=order.lease_seconds,
        kind_modules=(queue_kinds.__name__,),
    )
    node = SimulatedNode(settings, threads)
    pool = SleepingPool(threads, hub)
    puller = Puller(node, pool, _receive)  # type: ignore[arg-type]  # quacks as needed
    puller.consume(list(node.kinds))
    puller.connect()
    puller.register(hub)
    return Seat(name=name, node=node, pool=pool, puller=puller)


def simulate(order: Order, hub: Any, is_over: Callable[[], bool]) -> list[dict[str, Any]]:
    """Run the nodes until it is over; return what each has seen."""
    random.seed(order.first)
    numbered = enumerate(order.threads, start=order.first)
    seats = [seated(order, number, threads, hub) for number, threads in numbered]
    while not is_over():
        hub.run_once()
    for seat in seats:
        seat.puller.shutdown()
    return [seat.told() for seat in seats]


def main(arguments: list[str]) -> int:
    """Simulate until the input ends; print one JSON list."""
    order = Order.from_text(arguments[0])
    hub: Any = Hub()
    hub.propagate_errors = (Exception,)  # Otherwise an error in a timer is only logged.
    has_ended: list[bool] = []
    hub.add_reader(sys.stdin.fileno(), lambda: has_ended.append(True))
    print(json.dumps(simulate(order, hub, lambda: bool(has_ended))))  # noqa: T201 - read by the bench
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
