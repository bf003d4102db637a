"""One node makes room for one large entry, and for no longer than that helps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.governor import Governor
from governor.ledger import Reservation
from governor.model import Decision, Estimate
from tests.unit.governor.builders import GIB, Machine, a_governor
from tests.unit.worker.builders import KIND, a_head, a_kind
from worker import keys
from worker.claim import Head
from worker.drain import DRAIN_AFTER_NS, Drain, DrainParts
from worker.drain_key import DrainSight, DrainState
from worker.queue_view import QueueView

SECOND_NS = 1_000_000_000
CEILING_BYTES = 14 * GIB
"""What the builders' node has when idle; 10 GiB of it are free."""
SMALL = Estimate(memory_fixed_bytes=GIB)


def a_large(bytes_needed: int, identity: str = "large", **changes: Any) -> Head:
    """Build a large entry that has waited."""
    return a_head(
        **{
            "source": keys.large(KIND),
            "is_large": True,
            "is_drained_for": True,
            "identity": identity,
            "charged_bytes": bytes_needed,
            "estimate_text": Estimate(memory_fixed_bytes=bytes_needed).to_header(),
            **changes,
        }
    )


@dataclass
class FakeKey:
    """A drain that all nodes of a test share: the holder, and what waits, the longest first."""

    waiting: list[Head] = field(default_factory=list)
    holder: str | None = None
    held: Head | None = None
    looks: int = 0

    def of(self, node: str) -> "FakeNodeKey":
        """Return it as one node sees it."""
        return FakeNodeKey(self, node)


@dataclass
class FakeNodeKey:
    """The drain as one node sees it."""

    shared: FakeKey
    node: str

    def look(self, _queues: QueueView, *, waited_ms: int, most_bytes: int, identity: str = "") -> DrainSight:
        """Do what the script does."""
        shared = self.shared
        shared.looks += 1
        if waited_ms != DRAIN_AFTER_NS // 1_000_000:
            raise AssertionError(waited_ms)
        if shared.held not in shared.waiting:
            shared.holder = shared.held = None
        fitting = [entry for entry in shared.waiting if entry.charged_bytes <= most_bytes]
        if shared.holder is None and identity:
            shared.held = next(entry for entry in fitting if entry.identity == identity)
            shared.holder = self.node
        if shared.holder is None:
            return DrainSight(state=DrainState.FREE, entries=tuple(fitting))
        if shared.holder == self.node and shared.held is not None:
            return DrainSight(state=DrainState.HELD, entries=(shared.held,))
        return DrainSight(state=DrainState.OTHER)

    def end(self, _queues: QueueView) -> None:
        """End it, where it is ours."""
        if self.shared.holder == self.node:
            self.shared.holder = self.shared.held = None


@dataclass
class Node:
    """One node of a test: 15 threads, 10 of 14 GiB free, 15 children."""

    drain: Drain
    governor: Governor
    machine: Machine
    children: Any
    queues: QueueView
    available_bytes: int = 12 * GIB
    cpu_psi_percent: float = 0

    def look(self) -> Head | None:
        """Let a look's time pass, and return what is drained for afterwards."""
        self.machine.now_ns += SECOND_NS
        self.drain.look(self.queues)
        return self.drain.entry

    def reserve(self, head: Head, estimate: Estimate) -> tuple[Decision, Reservation | None]:
        """Ask the governor."""
        return self.governor.reserve(
            self.machine.look(available_bytes=self.available_bytes, cpu_psi_percent=self.cpu_psi_percent),
            estimate,
            head.kind,
            waiting_items=1,
        )

    def start_small(self, estimate: Estimate = SMALL) -> Reservation | None:
        """Start a small job, where the drain and the governor allow it."""
        head = a_head()
        allowed = self.drain.allowed(head, estimate)
        if allowed is None:
            return None
        _, reservation = self.reserve(head, allowed)
        if reservation is not None:
            self.drain.note_reserved(head, reservation)
        return reservation

    def try_entry(self) -> Reservation | None:
        """Try what is drained for."""
        entry = self.drain.entry
        if entry is None:
            return None
        decision, reservation = self.reserve(entry, Estimate.from_header(entry.estimate_text))
        if reservation is None:
            self.drain.note_waiting(self.queues, entry, decision)
        else:
            self.drain.note_reserved(entry, reservation)
        return reservation

    def wait_in_vain(self, seconds: int) -> None:
        """Try what is drained for over and over for so long."""
        end_ns = self.machine.now_ns + seconds * SECOND_NS
        while self.machine.now_ns < end_ns and self.drain.entry is not None:
            self.try_entry()


def a_node(
    key: FakeKey, name: str = "one", is_for_others: Callable[[Head], bool] = lambda _head: False
) -> Node:
    """Build a node that sees a drain."""
    machine = Machine()
    governor = a_governor(machine)
    governor.decide(machine.look(available_bytes=12 * GIB), SMALL, KIND)
    children = SimpleNamespace(num_processes=15)
    drain = Drain(
        DrainParts(
            key=key.of(name),
            governor=governor,
            kinds={KIND: a_kind()},
            children=children,
            is_for_others=is_for_others,
            now_ns=machine.clock,
        )
    )
    queues = SimpleNamespace(large_sets=lambda: [keys.large(KIND)] if key.waiting else [])
    return Node(drain, governor, machine, children, cast("QueueView", queues))


def test_a_node_drains_for_what_waits_longest() -> None:
    """However large the others are."""
    key = FakeKey([a_large(8 * GIB, "first"), a_large(12 * GIB, "second")])

    assert a_node(key).look() == key.waiting[0]


def test_one_node_drains_at_a_time() -> None:
    """The other one takes what it likes."""
    key = FakeKey([a_large(10 * GIB), a_large(10 * GIB, "next")])
    first, second = a_node(key, "first"), a_node(key, "second")

    assert first.look() is not None
    assert second.look() is None
    assert first.start_small() is None
    assert second.start_small() is not None


def test_another_node_drains_when_the_first_has_died() -> None:
    """Its lease has ended, and the drain with it."""
    key = FakeKey([a_large(10 * GIB)])
    first, second = a_node(key, "first"), a_node(key, "second")
    first.look()
    key.holder = key.held = None

    assert second.look() == key.waiting[0]
    assert first.look() is None


def test_another_node_drains_at_once_when_the_first_leaves() -> None:
    """It is told to end, and takes nothing more."""
    key = FakeKey([a_large(10 * GIB)])
    first, second = a_node(key, "first"), a_node(key, "second")
    first.look()
    first.drain.leave(first.queues)

    assert first.drain.entry is None
    assert second.look() == key.waiting[0]


@pytest.mark.parametrize(("needed_bytes", "drains"), [(CEILING_BYTES, True), (CEILING_BYTES + 1, False)])
def test_what_never_fits_is_not_drained_for(needed_bytes: int, *, drains: bool) -> None:
    """A larger node may come; this one goes on."""
    node = a_node(FakeKey([a_large(needed_bytes)]))

    assert (node.look() is not None) == drains


def test_what_needs_a_gpu_is_not_drained_for_without_one() -> None:
    """What waits behind it is."""
    wants_gpu = a_large(GIB, "gpu", estimate_text=Estimate(gpu_slots=1).to_header())
    key = FakeKey([wants_gpu, a_large(10 * GIB)])

    assert a_node(key).look() == key.waiting[1]


def test_what_others_see_is_left_to_them() -> None:
    """This node has no access to the photos."""
    assert a_node(FakeKey([a_large(GIB)]), is_for_others=lambda _head: True).look() is None


def test_an_entry_that_is_gone_is_not_drained_for_any_more() -> None:
    """Another node has claimed it, or it was cancelled: small jobs go on at once."""
    key = FakeKey([a_large(10 * GIB)])
    node = a_node(key)
    node.look()
    assert node.start_small() is None
    key.waiting.clear()

    assert node.look() is None
    assert node.start_small() is not None


def test_a_kind_that_is_no_longer_pulled_is_not_drained_for() -> None:
    """`celery control cancel_consumer`: another node may take over."""
    key = FakeKey([a_large(10 * GIB)])
    node = a_node(key)
    node.look()
    cast("Any", node.queues).large_sets = list

    assert node.look() is None
    assert key.holder is None


def test_an_entry_starts_when_what_ran_before_has_ended() -> None:
    """A job that takes the whole node, and small ones that would fill it for ever."""
    node = a_node(FakeKey([a_large(10 * GIB)]))
    before = [node.start_small(), node.start_small()]
    node.look()
    for reservation in before:
        assert reservation is not None
        assert node.try_entry() is None
        node.governor.release(reservation)
        assert node.start_small() is None

    assert node.try_entry() is not None


def test_small_jobs_go_on_beside_an_entry_that_leaves_room() -> None:
    """10 GiB are free, 6 are needed: two jobs of 1 GiB may be charged, and used, at the same time."""
    node = a_node(FakeKey([a_large(6 * GIB)]))
    before = node.start_small(Estimate(memory_fixed_bytes=5 * GIB))
    node.look()
    assert node.try_entry() is None
    beside = [node.start_small() for _ in range(3)]
    assert [one is not None for one in beside] == [True, True, False]
    assert before is not None
    node.governor.release(before)
    node.available_bytes -= 2 * GIB  # All that they have reserved is in use.

    assert node.try_entry() is not None


def test_what_ends_beside_an_entry_makes_room_for_the_next() -> None:
    """The machine is never idle where it does no harm."""
    node = a_node(FakeKey([a_large(8 * GIB)]))
    node.start_small(Estimate(memory_fixed_bytes=5 * GIB))
    node.look()
    first = node.start_small()
    assert first is not None
    assert node.start_small() is None
    node.governor.release(first)

    assert node.start_small() is not None


def test_the_last_child_is_kept_for_the_entry() -> None:
    """It needs one to run in."""
    node = a_node(FakeKey([a_large(2 * GIB)]))
    node.children.num_processes = 2
    node.look()

    assert node.start_small() is not None
    assert node.start_small() is None


def test_what_comes_after_the_entry_in_a_turn_is_not_held_back() -> None:
    """The entry has its reservation."""
    node = a_node(FakeKey([a_large(8 * GIB)]))
    node.look()

    assert node.try_entry() is not None
    assert node.start_small() is not None
    assert node.start_small() is not None


def test_an_entry_that_does_not_fit_an_idle_node_is_let_go() -> None:
    """Other programs hold the memory; the node would idle for ever."""
    key = FakeKey([a_large(11 * GIB)])
    node = a_node(key)
    node.look()
    node.wait_in_vain(29)
    assert node.start_small() is None
    node.wait_in_vain(2)

    assert node.drain.entry is None
    assert key.holder is None
    assert node.start_small() is not None


def test_an_entry_is_not_let_go_while_jobs_run_that_were_there_before() -> None:
    """Their end may be all that it waits for."""
    node = a_node(FakeKey([a_large(11 * GIB)]))
    node.start_small()
    node.look()
    node.wait_in_vain(60)

    assert node.drain.entry is not None


def test_an_entry_is_let_go_though_small_jobs_run_beside_it() -> None:
    """It waits for something else than what they have reserved."""
    node = a_node(FakeKey([a_large(4 * GIB)]))
    node.look()
    assert node.start_small() is not None
    node.cpu_psi_percent = 20
    node.wait_in_vain(31)

    assert node.drain.entry is None


def test_an_entry_is_not_let_go_while_the_end_of_a_small_job_may_help() -> None:
    """Another program has taken memory since that was started beside it; nothing more is."""
    node = a_node(FakeKey([a_large(4 * GIB)]))
    node.look()
    beside = node.start_small()
    node.available_bytes = 6 * GIB
    node.wait_in_vain(60)
    assert node.start_small() is None
    assert beside is not None
    node.governor.release(beside)

    assert node.try_entry() is not None


def test_what_was_let_go_is_drained_for_again_after_a_rest() -> None:
    """The other programs may have ended."""
    node = a_node(FakeKey([a_large(11 * GIB)]))
    node.look()
    node.wait_in_vain(31)
    node.machine.now_ns += 295 * SECOND_NS
    assert node.look() is None
    node.machine.now_ns += 5 * SECOND_NS

    assert node.look() is not None


def test_smaller_entries_are_drained_for_during_the_rest() -> None:
    """Those that need as much would not fit either."""
    key = FakeKey([a_large(11 * GIB), a_large(12 * GIB, "larger"), a_large(10 * GIB, "smaller")])
    node = a_node(key)
    node.look()
    node.wait_in_vain(31)

    assert node.look() == key.waiting[2]


def test_another_large_entry_is_looked_for_within_what_it_may_take() -> None:
    """Not within all that is free: the largest that fits that would hide those that may start."""
    node = a_node(FakeKey([a_large(6 * GIB)]))
    assert node.drain.most_bytes() == 10 * GIB
    node.look()

    assert node.drain.most_bytes() == 2 * GIB


def test_nothing_is_asked_where_nothing_large_waits() -> None:
    """Nor twice within a quarter of a second."""
    key = FakeKey()
    node = a_node(key)
    node.look()
    assert key.looks == 0
    key.waiting.append(a_large(CEILING_BYTES + 1))
    node.look()
    node.drain.look(node.queues)

    assert key.looks == 1


def test_the_drain_is_kept_though_nothing_may_start() -> None:
    """All children are busy; the key would end."""
    key = FakeKey([a_large(10 * GIB)])
    node = a_node(key)
    node.drain.keep(node.queues)
    assert key.looks == 0
    node.look()
    looks = key.looks
    node.drain.keep(node.queues)

    assert key.looks == looks + 1


def test_what_the_node_waits_for_tells_that_it_drains() -> None:
    """Nobody should wonder why it idles."""
    node = a_node(FakeKey([a_large(10 * GIB)]))
    assert node.drain.sentence() == ""
    node.look()

    assert f"this job of {KIND}" in node.drain.sentence()
