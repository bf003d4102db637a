"""The node's loop hears of what Celery only notes."""

import select
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import bootsteps
from celery.exceptions import WorkerShutdown
from celery.signals import worker_shutting_down

from tasks.store.probe import StoreFault
from worker.claim import LeaseLostError
from worker.consumer import PullStep
from worker.node import Node
from worker.puller import Puller
from worker.settings import Settings


class FakeHub:
    """An event loop that tells what would make its poll return."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Remember the reader."""
        self.readers[fd] = callback

    def call_repeatedly(self, seconds: float, callback: Callable[[], None]) -> None:
        """Forget the timer: no time passes here."""

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Keep the timer."""
        self.timers.append((seconds, partial(callback, *arguments)))

    def fire(self) -> None:
        """Let the time of all timers come."""
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()

    @property
    def is_awake(self) -> bool:
        """Tell whether the poll would return at once."""
        return bool(select.select(list(self.readers), [], [], 0)[0])

    def answer(self) -> None:
        """Call all readers."""
        for callback in self.readers.values():
            callback()


@pytest.fixture
def hub() -> FakeHub:
    """Return an event loop."""
    return FakeHub()


@pytest.fixture
def pool() -> Any:
    """Return what tells of new children."""
    return SimpleNamespace()


@pytest.fixture
def puller(tmp_path: Path, hub: FakeHub, pool: Any) -> Iterator[Puller]:
    """Return the loop of a node that has pulled all there is, and asks no server."""
    puller = Puller(Node(Settings(store=tmp_path, single_node=True)), pool, lambda _message: [])
    puller.register(hub)
    hub.answer()
    yield puller
    puller.stop()


class FakeQueues:
    """Queues that Redis has told something of: that they have changed, or something else."""

    def __init__(self, *, has_changed: bool) -> None:
        self._has_changed = has_changed

    def forget_what_has_changed(self) -> bool:
        """Tell which."""
        return self._has_changed


class FakeIntake:
    """Takes nothing, and remembers when it was asked to; leaves the rest to others as often as told."""

    should_retry = False

    def __init__(self, leaves: int) -> None:
        self._leaves = leaves
        self.takes: list[bool] = []
        """Of each whether it was the last turn."""

    @property
    def lets_others_first(self) -> bool:
        """Tell whether something is left to others."""
        return len(self.takes) <= self._leaves

    def take(self, _queues: FakeQueues, *, is_last_turn: bool) -> bool:
        """Take nothing more."""
        self.takes.append(is_last_turn)
        return False


def wake(puller: Puller, *, nodes: int, has_changed: bool = True, leaves: int = 0) -> FakeIntake:
    """Have Redis wake one of so many nodes."""
    parts: Any = (FakeQueues(has_changed=has_changed), intake := FakeIntake(leaves))
    puller.lease.live_nodes, puller._is_pulling = nodes, True
    puller._queues, puller._intake = parts
    puller._on_invalidation()
    return intake


@pytest.mark.usefixtures("puller")
def test_a_new_child_wakes_the_loop(hub: FakeHub, pool: Any) -> None:
    """A message may have come while there was none: without it that would wait for the next sweep."""
    was_awake = hub.is_awake
    pool.on_room()

    assert (was_awake, hub.is_awake) == (False, True)


def test_a_node_by_itself_looks_at_once(puller: Puller, hub: FakeHub) -> None:
    """There is nobody to let go first."""
    intake = wake(puller, nodes=1)

    assert (len(intake.takes), hub.timers) == (1, [])


def test_a_node_among_others_looks_when_its_turn_has_come(puller: Puller, hub: FakeHub) -> None:
    """One message wakes them all; a second one meanwhile changes nothing."""
    intake = wake(puller, nodes=64)
    puller._on_invalidation()
    takes_before, timers = list(intake.takes), len(hub.timers)
    hub.fire()

    assert (takes_before, timers) == ([], 1)
    assert intake.takes == [False]


def test_what_was_left_to_others_is_taken_in_the_last_turn(puller: Puller, hub: FakeHub) -> None:
    """However that turn came: without it the rest would wait for the next sweep."""
    intake = wake(puller, nodes=2, leaves=1)
    hub.fire()
    hub.fire()

    assert intake.takes == [False, True]
    assert hub.timers == []


def test_what_is_left_by_a_node_that_is_alone_by_then_is_taken_at_once(puller: Puller, hub: FakeHub) -> None:
    """The others may leave between two looks."""
    intake = wake(puller, nodes=1, leaves=1)

    assert (intake.takes, hub.timers) == ([False, True], [])


def test_a_change_of_no_queue_starts_no_look(puller: Puller, hub: FakeHub) -> None:
    """Redis tells of the leases too, which every claim has read."""
    intake = wake(puller, nodes=1, has_changed=False)

    assert (intake.takes, hub.timers) == ([], [])
    assert puller.wake_ups == 1


@pytest.mark.usefixtures("puller")
def test_the_loop_sees_at_once_that_the_worker_is_to_stop(hub: FakeHub) -> None:
    """Not when its poll has timed out, a second later."""
    was_awake = hub.is_awake
    worker_shutting_down.send(sender="worker", sig="SIGTERM", how="Warm", exitcode=0)

    assert (was_awake, hub.is_awake) == (False, True)


class EndlessIntake(FakeIntake):
    """Finds more each time; the worker is told to end while it looks for the second time."""

    def take(self, queues: FakeQueues, *, is_last_turn: bool) -> bool:
        """Take something."""
        super().take(queues, is_last_turn=is_last_turn)
        if len(self.takes) == 2:
            worker_shutting_down.send(sender="worker", sig="SIGTERM", how="Warm", exitcode=0)
        return True


def test_a_node_that_is_told_to_end_takes_nothing_more(puller: Puller) -> None:
    """Also in the midst of taking: each look may take as much as the node has room for."""
    queues: Any = FakeQueues(has_changed=True)
    intake: Any = EndlessIntake(0)
    puller._queues, puller._intake, puller._is_pulling = queues, intake, True
    puller.pull()

    assert len(intake.takes) == 2


@pytest.mark.parametrize(("state", "leaves"), [("RUN", False), ("CLOSE", True), ("TERMINATE", True)])
def test_only_a_worker_that_ends_leaves_its_drain_to_others(state: str, leaves: bool) -> None:  # noqa: FBT001 - a table
    """One that connects anew is stopped in the same way, and goes on."""
    told: list[str] = []
    step: Any = object.__new__(PullStep)
    step._puller = SimpleNamespace(stop=lambda: told.append("stop"), leave=lambda: told.append("leave"))
    step.stop(SimpleNamespace(blueprint=SimpleNamespace(state=getattr(bootsteps, state))))

    assert told == ["stop", *(["leave"] if leaves else [])]


def test_autoscaling_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """It would keep as many children as its least, and the rest of the machine idle."""
    step: Any = object.__new__(PullStep)

    with pytest.raises(WorkerShutdown) as ended:
        step.start(SimpleNamespace(controller=SimpleNamespace(autoscale=[4, 1])))

    assert ended.value.args == (2,)
    assert capsys.readouterr().err.startswith("error: --autoscale is not for a governed worker: ")


def test_an_outage_in_a_warm_shutdown_is_met_once_in_a_while(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends meanwhile waits; a server that does not answer would hold up the children each time."""
    tries: list[str] = []

    def be_away(_client: Any) -> None:
        tries.append("settle")
        raise redis.ConnectionError

    monkeypatch.setattr(puller.settler, "flush", be_away)
    puller._settle_outside_the_loop()
    puller._settle_outside_the_loop()

    assert tries == ["settle"]


def test_without_its_store_a_node_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job would come back at once."""
    pool: Any = SimpleNamespace()
    puller = Puller(Node(Settings(store=tmp_path, single_node=True)), pool, lambda _message: [])
    taken: list[str] = []
    monkeypatch.setattr(puller, "_queues", object())
    monkeypatch.setattr(puller, "_is_pulling", True)
    monkeypatch.setattr(puller, "_take_from", lambda *_, **__: taken.append("once"))
    puller.pull()
    puller._store.note_fault(StoreFault(cause="the disk is full", cure="free space"))
    puller.pull()
    told = puller.describe()["waits_for"]
    puller._store.close()

    assert (taken, told) == (["once"], "the store: the disk is full; free space")


def test_a_claim_that_finds_the_lease_ended_takes_it_and_looks_again(
    puller: Puller, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would tell the node that there is work: what waits has not changed."""
    taken: list[Any] = []
    monkeypatch.setattr(puller.lease, "ensure", taken.append)
    was_awake = hub.is_awake

    def find_it_ended() -> None:
        raise LeaseLostError

    with puller._lease_kept():
        find_it_ended()

    assert len(taken) == 1
    assert (was_awake, hub.is_awake) == (False, True)
