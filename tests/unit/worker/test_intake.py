"""Nothing is claimed without a reservation, and no reservation outlives a claim that brought nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.governor import Governor
from governor.model import Estimate, Grant
from governor.planning.contract import Contract, ServiceClass
from governor.planning.profile import CellKey, Durations, ProfileSet
from tests.unit.governor.builders import GIB, Machine, a_governor
from tests.unit.worker.builders import KIND, a_claimed, a_head, a_kind, an_item
from worker import keys
from worker.claim import Claimed, Head, LeaseLostError, Wish
from worker.claimed_item import ClaimedItem
from worker.contracts import SentContract
from worker.drain import DRAIN_AFTER_NS
from worker.intake import Intake, IntakeParts
from worker.look_ahead import LookAhead, Occupied, Veto
from worker.planning import NodePlanning
from worker.planning_settings import PlanningSettings
from worker.queue_view import QueueView, Turn
from worker.redis_scripts import Script
from worker.running_batch import RunningBatch


@dataclass
class FakeQueues:
    """Queues with these heads; a wish brings what ``brings`` says, by default all that it asks for."""

    waiting: list[Head]
    brings: Callable[[Wish], int] = lambda wish: wish.batch
    error: Exception | None = None
    needs_look: bool = False
    is_stale: bool = False
    looks: int = 0
    most_bytes: int | None = None
    """What the last look asked for of the large sets."""
    turns: list[list[Wish]] = field(default_factory=list)
    drained_for: list[bytes | int] | None = None
    """What this node drains for, as the script tells it."""

    has_large: bool = False

    def look(self, most_bytes: Callable[[], int]) -> None:
        """Count."""
        self.looks += 1
        self.most_bytes = most_bytes()

    def large_sets(self) -> list[str]:
        """Return the large sets that are not empty."""
        return [keys.large(KIND)] if self.has_large or self.drained_for is not None else []

    def run_script(self, script: Script, *_: Any) -> Any:
        """Tell that the drain is ours, or another's where we drain for nothing."""
        held = [b"other"] if self.drained_for is None else [b"held", self.drained_for]
        return held if script is Script.DRAIN else 1

    def heads(self) -> list[Head]:
        """Return what waits."""
        return self.waiting

    def turn(self, wishes: Sequence[Wish], _most_bytes: Callable[[], int]) -> Turn:
        """Claim."""
        self.turns.append(list(wishes))
        return Turn(
            claimed=[[a_claimed() for _ in range(self.brings(wish))] for wish in wishes], error=self.error
        )

    @property
    def wished(self) -> list[list[tuple[str, int]]]:
        """Return (source, batch) of the wishes of each turn."""
        return [[(wish.head.source, wish.batch) for wish in turn] for turn in self.turns]


class FakePool:
    """A pool of so many children, none of which ever finishes."""

    def __init__(self, children: int) -> None:
        self.idle_children = self.num_processes = children
        self.batches: list[RunningBatch] = []

    def submit(self, batch: RunningBatch) -> None:
        """Keep a batch."""
        self.idle_children -= 1
        self.batches.append(batch)


class FakeMisfits:
    """Refuses and rejects nothing; remembers what had to wait."""

    def __init__(self) -> None:
        self.waited: list[Head] = []

    def on_wait(self, _queues: QueueView, head: Head, *_: Any) -> None:
        """Remember."""
        self.waited.append(head)


@dataclass
class Scene:
    """An intake on a node of its own."""

    intake: Intake
    governor: Governor
    pool: FakePool
    misfits: FakeMisfits
    node: SimpleNamespace

    def take(self, queues: FakeQueues, *, is_last_turn: bool = False) -> bool:
        """Take from these queues."""
        return self.intake.take(cast("QueueView", queues), is_last_turn=is_last_turn)

    @property
    def reservations(self) -> int:
        """Return how many reservations are active."""
        return self.governor.availability().active_reservations


def _receive(claimed: list[Claimed], _kind: str) -> list[ClaimedItem]:
    return [an_item() for _ in claimed]


def a_scene(
    children: int = 2,
    *,
    available_bytes: int = 10 * GIB,
    nodes: int = 1,
    planning: NodePlanning | None = None,
) -> Scene:
    """Build an intake with so many idle children, on one of so many nodes."""
    machine = Machine()
    governor = a_governor(machine)
    kind = a_kind()
    node = SimpleNamespace(
        governor=governor,
        kinds={KIND: kind},
        charged=lambda _kind, estimate: estimate,
        snapshot=lambda: machine.look(available_bytes=available_bytes),
        free_memory_bytes=lambda: governor.availability().available.memory_bytes,
    )
    pool = FakePool(children)
    services = SimpleNamespace(
        governor=governor,
        settler=None,
        sight=None,
        store=None,
        on_over=None,
        planning=planning,
        durations=None,
    )
    misfits = FakeMisfits()
    parts: Any = SimpleNamespace(
        node=node,
        pool=pool,
        lease=SimpleNamespace(live_nodes=nodes, incarnation="one|1", server_now_ms=lambda: 0),
        reception=SimpleNamespace(receive=_receive),
        misfits=misfits,
        services=services,
        running=set(),
    )
    return Scene(Intake(cast("IntakeParts", parts)), governor, pool, misfits, node)


def test_all_idle_children_are_served_by_one_claim() -> None:
    """Each under a reservation of its own; what the first leaves is counted on for the second."""
    scene, queues = a_scene(children=2), FakeQueues([a_head(count=100)])

    assert scene.take(queues)
    assert queues.wished == [[(KIND, 4), (KIND, 4)]]
    assert (scene.reservations, len(scene.pool.batches)) == (2, 2)


def test_what_a_node_charges_in_addition_is_reserved() -> None:
    """A GPU's driver, of which the message knows nothing; what is compared by the claim stays."""
    scene, head = a_scene(children=1), a_head(count=1)
    scene.node.charged = lambda _kind, estimate: replace(estimate, memory_fixed_bytes=2 * GIB)
    queues = FakeQueues([head])
    scene.take(queues)

    assert (
        scene.pool.batches[0].request.grant.memory_bytes == 2 * GIB + a_kind().estimate.memory_per_item_bytes
    )
    assert queues.turns[0][0].head == head


@pytest.mark.parametrize(("has_large", "most_gib"), [(True, 1), (False, 14)])
def test_large_entries_are_looked_for_by_a_fresh_reading(has_large: bool, most_gib: int) -> None:  # noqa: FBT001
    """Nothing else is asked on an idle node, whose last reading may be old."""
    scene, queues = a_scene(available_bytes=3 * GIB), FakeQueues([], needs_look=True, has_large=has_large)
    scene.take(queues)

    assert queues.most_bytes == most_gib * GIB


def test_without_an_idle_child_nothing_is_reserved_or_asked() -> None:
    """What waits stays in Redis for other nodes."""
    scene, queues = a_scene(children=0), FakeQueues([a_head(count=100)], needs_look=True)

    assert not scene.take(queues)
    assert (scene.reservations, queues.turns) == (0, [])


@pytest.mark.parametrize(
    "head", [a_head(count=100, mark="solo"), a_head(count=100, is_large=True), a_head(count=1)]
)
def test_one_message_is_reserved_for_once(head: Head) -> None:
    """A suspect, a large entry and the last message: what is behind them is not alike."""
    scene, queues = a_scene(children=2), FakeQueues([head])
    scene.take(queues)

    assert queues.wished == [[(KIND, 1)]]


@pytest.mark.parametrize(("waiting", "batches", "lets_others_first"), [(2, 1, True), (3, 2, False)])
def test_a_node_takes_its_share_and_lets_others_first(
    waiting: int, batches: int, *, lets_others_first: bool
) -> None:
    """Of two messages for two nodes one, though two children are idle; of three, two."""
    scene = a_scene(children=2, nodes=2)
    goes_on = scene.take(FakeQueues([a_head(count=waiting)]))

    assert len(scene.pool.batches) == batches
    assert (scene.intake.lets_others_first, goes_on) == (lets_others_first, not lets_others_first)


def test_a_share_counts_what_waits_in_all_lists() -> None:
    """Twice two messages for two nodes: two are taken, though three children are idle."""
    scene, heads = a_scene(children=3, nodes=2), [a_head(count=2), a_head(source="other", count=2)]
    scene.take(FakeQueues(heads))

    assert len(scene.pool.batches) == 2
    assert scene.intake.lets_others_first


def test_in_the_last_turn_a_node_takes_what_there_is_room_for() -> None:
    """The others have had theirs: what they have left would wait for nobody."""
    scene = a_scene(children=2, nodes=2)
    goes_on = scene.take(FakeQueues([a_head(count=2)]), is_last_turn=True)

    assert len(scene.pool.batches) == 2
    assert (scene.intake.lets_others_first, goes_on) == (False, True)


def test_what_the_first_head_leaves_goes_to_the_next() -> None:
    """One claim serves several lists."""
    scene, queues = a_scene(children=2), FakeQueues([a_head(priority=3), a_head(source="other", count=2)])
    scene.take(queues)

    assert [source for source, _ in queues.wished[0]] == [KIND, "other"]


def test_a_claim_that_brings_nothing_ends_its_reservation() -> None:
    """Another node was faster."""
    scene, queues = a_scene(children=2), FakeQueues([a_head(count=100)], brings=lambda _: 0)

    assert scene.take(queues)
    assert (scene.reservations, scene.pool.batches) == (0, [])
    assert scene.intake.empty_claims == 2


def test_a_claim_that_brings_less_shrinks_its_reservation() -> None:
    """Before the batch is dispatched."""
    scene, queues = a_scene(children=1), FakeQueues([a_head(count=100)], brings=lambda _: 1)
    scene.take(queues)
    charge_bytes = a_kind().estimate.memory_bytes(1)

    assert scene.governor.availability().reserved.memory_bytes == charge_bytes
    assert len(scene.pool.batches[0].open_tags()) == 1


def test_what_was_claimed_is_run_though_another_claim_has_failed() -> None:
    """It is ours: nobody else would run it."""
    scene = a_scene(children=2)
    brings = iter([4, 0])
    queues = FakeQueues([a_head(count=100)], brings=lambda _: next(brings), error=LeaseLostError())
    with pytest.raises(LeaseLostError):
        scene.take(queues)

    assert (scene.reservations, len(scene.pool.batches)) == (1, 1)


def test_a_head_that_waits_for_memory_is_tried_again_later() -> None:
    """No release and no message will tell when the machine has more."""
    scene, queues = a_scene(available_bytes=0), FakeQueues([a_head(count=100)])

    assert not scene.take(queues)
    assert scene.intake.should_retry
    assert scene.intake.waits_for is not None


def test_an_empty_queue_is_not_tried_again() -> None:
    """A message will wake the node."""
    scene = a_scene()

    assert not scene.take(FakeQueues([]))
    assert not scene.intake.should_retry


def test_large_entries_of_which_none_fits_are_tried_again() -> None:
    """Nothing is known of them but that they are there; other programs may let go of memory."""
    scene = a_scene()

    assert not scene.take(FakeQueues([], has_large=True))
    assert scene.intake.should_retry


def a_drained_entry(needed_bytes: int) -> list[bytes | int]:
    """Build an entry as the script tells it."""
    estimate = Estimate(memory_fixed_bytes=needed_bytes).to_header().encode()
    large = keys.large(KIND).encode()
    return [1, estimate, b"ok", b"", str(needed_bytes).encode(), b"drained", KIND.encode(), b"", b"", large]


def test_what_is_drained_for_is_tried_first_and_once() -> None:
    """Whatever its class, and though the look has found it as the largest that fits."""
    entry = a_head(is_large=True, source=keys.large(KIND), identity="drained")
    queues = FakeQueues([a_head(priority=0, count=9), entry], drained_for=a_drained_entry(5 * GIB))
    a_scene(children=3).take(queues)

    assert [source for source, _ in queues.wished[0]] == [keys.large(KIND), KIND, KIND]


def test_nothing_is_started_that_would_put_off_what_is_drained_for() -> None:
    """It waits for memory; the small job would fit, and take of it."""
    scene = a_scene(available_bytes=3 * GIB)
    queues = FakeQueues([a_head(count=100)], drained_for=a_drained_entry(5 * GIB))

    assert not scene.take(queues)
    assert scene.reservations == 0
    assert scene.intake.should_retry
    assert "kept free for this job" in (scene.intake.waits_for or "")


def test_a_busy_node_sees_what_waits_once_a_second() -> None:
    """It could not try it; but a head that nobody knows of does not wait."""
    scene, queues = a_scene(children=0), FakeQueues([a_head()], is_stale=True)
    scene.take(queues)
    assert (queues.looks, scene.intake.should_retry) == (1, False)
    scene.take(queues)

    assert (queues.looks, scene.intake.should_retry) == (1, True)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns


@pytest.mark.parametrize(("waited_ns", "is_tried"), [(DRAIN_AFTER_NS - 1, False), (DRAIN_AFTER_NS, True)])
def test_what_is_starved_for_memory_is_tried_first(
    monkeypatch: pytest.MonkeyPatch, waited_ns: int, *, is_tried: bool
) -> None:
    """Its project has had its turn, so what comes before it takes the only child, over and over."""
    scene, clock = a_scene(children=3), Clock()
    monkeypatch.setattr("worker.intake.time", clock)
    estimate_text = Estimate(memory_fixed_bytes=11 * GIB).to_header()
    starved = a_head(source="starved", project="served", estimate_text=estimate_text)
    scene.take(FakeQueues([starved]))
    clock.now_ns = 1
    scene.take(FakeQueues([starved, a_head(project="served")]))
    scene.misfits.waited.clear()
    scene.pool.idle_children = 1
    clock.now_ns = waited_ns
    scene.take(FakeQueues([starved, a_head(project="new")]))

    assert scene.misfits.waited == [starved] * is_tried
    assert len(scene.pool.batches) == 2


def test_what_waits_long_and_would_fit_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be drained for: it waits for a child, as its project has been served."""
    scene, clock = a_scene(children=1), Clock()
    monkeypatch.setattr("worker.intake.time", clock)
    waits = a_head(source="waits", project="served")
    scene.take(FakeQueues([waits, a_head(project="served", priority=0)]))
    clock.now_ns = 1
    scene.pool.idle_children = 1
    scene.take(FakeQueues([waits, a_head(project="served", priority=0)]))
    clock.now_ns = 1 + DRAIN_AFTER_NS
    scene.pool.idle_children = 1
    queues = FakeQueues([waits, a_head(project="new")])
    scene.take(queues)

    assert [source for source, _ in queues.wished[0]] == [KIND]


@dataclass
class FixedLookAhead:
    """Puts everything off, or nothing; remembers what it was asked about."""

    veto_of_all: Veto | None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def note(self, *_: Any) -> None:
        """See what waits."""

    def veto(self, _head: Head, grant: Grant, running: Sequence[Occupied], *_: Any) -> Veto | None:
        """Remember."""
        self.asked.append((grant.batch, len(running)))
        return self.veto_of_all


def test_what_is_put_off_for_a_stream_stays_where_it_is() -> None:
    """Its reservation is given back, the reason is told, and it is tried again."""
    scene = a_scene()
    veto = Veto(kind="live", service_class=ServiceClass.PROTECTED, arrives_in_ns=400_000_000)
    scene.intake.look_ahead = cast("LookAhead", FixedLookAhead(veto))
    queues = FakeQueues([a_head()])

    assert not scene.take(queues)
    assert (queues.turns, scene.reservations) == ([], 0)
    assert scene.intake.waits_for == "WAIT LOOK_AHEAD: left for the next protected live, expected in 0.4 s"
    assert scene.intake.should_retry


def test_what_is_in_nobodys_way_starts_as_ever() -> None:
    """The batches of the same claim count as running."""
    scene = a_scene(children=2)
    fixed = FixedLookAhead(None)
    scene.intake.look_ahead = cast("LookAhead", fixed)
    scene.take(FakeQueues([a_head(count=100)]))

    assert len(scene.pool.batches) == 2
    assert [running for _, running in fixed.asked] == [0, 1]


@pytest.mark.parametrize(("deadline_ns", "batch"), [(40, 4), (39, 2), (9, 1), (None, 4)])
def test_a_batch_with_a_deadline_is_as_large_as_ends_by_then(deadline_ns: int | None, batch: int) -> None:
    """Each item is planned with 10 ns; four are as many as run in one batch here."""
    durations = Durations(p50_ns=5, p95_ns=9, p99_ns=10)
    cells = {CellKey.of(KIND, items=64, others=others): durations for others in range(2)}
    planning = NodePlanning(PlanningSettings(margin_percent=100), ProfileSet(cells=cells))
    head = a_head(count=100, contract=SentContract(contract=Contract(deadline_ns=deadline_ns)))
    queues = FakeQueues([head])
    a_scene(children=1, planning=planning).take(queues)

    assert queues.wished == [[(KIND, batch)]]
