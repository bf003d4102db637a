"""A node tells what it has, could offer and waits for; a client reads the same numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from governor.governor import Governor
from governor.model import Gpu, Snapshot
from governor.totals import Totals
from tests.unit.governor.builders import (
    GIB,
    Machine,
    a_dedicated_gpu,
    a_policy,
    a_profile,
    a_snapshot,
    a_uma_gpu,
    an_estimate,
)
from worker.live_nodes import LiveNode, read_node
from worker.node_entry import NodeEntry
from worker.settings import Settings

SECOND_NS = 10**9


class FakeNode:
    """A node of 16 GiB, 2 of them kept back, whose clock and machine a test sets."""

    def __init__(self, gpu: Gpu | None = None, **settings: Any) -> None:
        self.machine = Machine()
        policy = a_policy(gpu_slots=0 if gpu is None else 1, gpu_memory_reserve_bytes=0)
        self.governor = Governor(
            a_profile(gpu=gpu), policy, now_ns=self.machine.clock, capture=self.machine.look
        )
        self.settings = Settings(store=Path("/store"), name="attic", **settings)
        self.totals = Totals(
            physical_memory_bytes=32 * GIB, memory_limit=None, affinity_cpus=16, quota_cpus=None
        )
        self.gpu_backend = type("Backend", (), {"is_usable": gpu is not None})
        self.available: dict[str, Any] = {}

    def snapshot(self) -> Snapshot:
        """Read the machine: 10 GiB are available unless a test says otherwise."""
        return a_snapshot(captured_at_ns=self.machine.now_ns, **self.available)


class Told:
    """The entry of a node, as a client reads it after so many seconds."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        as_node: Any = node
        self._entry = NodeEntry(as_node, node.machine.clock)

    def after(self, seconds: int, waits_for: str = "") -> LiveNode:
        """Let time pass and read the entry."""
        self.node.machine.now_ns += seconds * SECOND_NS
        return read_node("attic", self._entry.fields(waits_for))


def test_what_the_node_could_offer_is_more_than_what_the_machine_leaves() -> None:
    """14 of 16 GiB when idle; 10 are available, 2 of them kept back."""
    told = Told(FakeNode()).after(0)

    assert (told.offers_memory_bytes, told.budget_memory_bytes) == (14 * GIB, 8 * GIB)
    assert (told.offers_cpu_threads, told.offers_gpu_slots, told.offers_gpu_memory_bytes) == (15, 0, 0)
    assert told.gpu == ""


def test_an_idle_node_tells_what_the_machine_leaves_now() -> None:
    """It has decided nothing since: the last reading may be old."""
    node = FakeNode()
    node.governor.decide(node.snapshot(), an_estimate(), "noop")
    node.available["memory_available_bytes"] = 3 * GIB

    assert Told(node).after(0).budget_memory_bytes == GIB


def test_reserved_and_free_are_told_of_each_resource() -> None:
    """As JSON for programs."""
    node = FakeNode()
    node.governor.reserve(node.snapshot(), an_estimate(io_slots=1), "noop")
    told = Told(node).after(0).to_dict()

    assert (told["active_reservations"], told["reserved_memory_bytes"]) == (1, 8 * GIB)
    assert (told["free_memory_bytes"], told["free_cpu_threads"], told["free_io_slots"]) == (0, 0, 7)
    assert json.dumps(told)


@pytest.mark.parametrize(
    ("gpu", "offered_bytes", "is_uma"),
    [(a_dedicated_gpu(), 4 * GIB, False), (a_dedicated_gpu(None), None, False), (a_uma_gpu(), 0, True)],
    ids=["dedicated", "unknown", "unified"],
)
def test_the_card_is_told(gpu: Gpu, offered_bytes: int | None, is_uma: bool) -> None:  # noqa: FBT001 - a table
    """With its memory, unknown where that cannot be read."""
    told = Told(FakeNode(gpu)).after(0)

    assert (told.gpu, told.gpu_is_uma, told.offers_gpu_slots) == (gpu.name, is_uma, 1)
    assert told.offers_gpu_memory_bytes == offered_bytes


def test_a_node_is_idle_since_its_last_reservation() -> None:
    """Also where a batch came and went between two heartbeats."""
    node = FakeNode()
    told = Told(node)
    told.after(0)
    idle = told.after(40)
    _, reservation = node.governor.reserve(node.snapshot(), an_estimate(), "noop")
    busy = told.after(3)
    node.governor.release(reservation)  # type: ignore[arg-type]  # it was granted
    released, later = told.after(3), told.after(30)

    assert [one.idle_seconds for one in (idle, busy, released, later)] == [40, 0, 0, 30]


def test_a_node_waits_since_it_has_the_same_reason() -> None:
    """The numbers behind it may change."""
    told = Told(FakeNode())
    first = told.after(1, "WAIT INSUFFICIENT_MEMORY: needs 3.00 GiB, 0.81 GiB free")
    same = told.after(20, "WAIT INSUFFICIENT_MEMORY: needs 3.00 GiB, 0.79 GiB free")
    other = told.after(5, "WAIT CPU_PSI: CPU pressure 36 % >= 20 %")

    assert [one.waits_seconds for one in (first, same, other, told.after(5))] == [0, 20, 0, 0]


def test_the_limits_in_force_are_told() -> None:
    """Of the machine and of the partition; None where there is no such bound."""
    limits = Told(FakeNode(memory_bytes=16 * GIB)).after(0).limits

    assert (limits["physical_memory_bytes"], limits["partition_memory_bytes"]) == (32 * GIB, 16 * GIB)
    assert (limits["memory_limit_bytes"], limits["quota_cpus"], limits["affinity_cpus"]) == (None, None, 16)


def test_the_entry_is_small() -> None:
    """It is written every three seconds by every node."""
    node: Any = FakeNode(a_dedicated_gpu())
    fields = NodeEntry(node, node.machine.clock).fields("WAIT INSUFFICIENT_MEMORY: needs 3.00 GiB" * 3)

    assert sum(len(name) + len(told) for name, told in fields.items()) < 1500
