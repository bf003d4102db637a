"""Whatever happens to batches and children: what is reserved is what the live children hold."""

import random
import select
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.cgroups import NO_LIMITS
from governor.model import Estimate, Grant, Resources
from tasks.errors import Failure, Reason
from tests.unit.governor.builders import GIB, Machine, a_governor, a_policy
from tests.unit.worker.builders import KIND, a_kind, an_item
from tests.unit.worker.fake_spawner import FakeChild, FakeSpawner, LinkToFake
from tests.unit.worker.test_running_batch import FakeSettler
from worker import pool as pool_module
from worker.deaths import Ending
from worker.memory_kills import CODE_BYTES, MemoryKills
from worker.pool import GovernedPool
from worker.pool_child import PoolChild
from worker.running_batch import BatchServices, RunningBatch
from worker.settle import Settler

CHILDREN = 4
EVENTS = 10_000
ESTIMATE = Estimate(
    memory_fixed_bytes=GIB // 4, memory_per_item_bytes=GIB // 2, max_batch=4, cpu_threads=3, io_slots=1
)
FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")
LARGER = Estimate(memory_fixed_bytes=64 * GIB).to_header()
OUTCOMES: tuple[dict[str, Any], ...] = (
    *({"action": "done"},) * 4,
    {"action": "failed", "failure": FAILURE.to_dict()},
    {"action": "needs", "estimate": LARGER},
    {"action": "transient", "cause": "the disk is full"},
)


class FakeHub:
    """Celery's event loop, one round at a time, in any order."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._readers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}

    def add_reader(self, fd: int, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back when there is something to read."""
        self._readers[fd] = (callback, arguments)

    def call_repeatedly(self, _seconds: float, _callback: Callable[[], None]) -> None:
        """Keep no time: a test lets a tick happen itself."""

    def remove(self, fd: int) -> None:
        """Call back no more."""
        self._readers.pop(fd, None)

    def run_once(self) -> bool:
        """Serve what is readable; tell whether that was anything."""
        readable, _, _ = select.select(list(self._readers), [], [], 0)
        self._chance.shuffle(readable)
        for fd in readable:
            if fd in self._readers:
                callback, arguments = self._readers[fd]
                callback(*arguments)
        return bool(readable)


class Scene:
    """One node's pool, whose spawner and children are fakes; a seed decides what happens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.machine = Machine()
        self.governor = a_governor(self.machine, policy=a_policy(cpu_psi_limit_percent=None))
        # At every change, not only between two events.
        self.governor.subscribe(self.governor.check)
        self.items: dict[str, list[Any]] = {}
        self.happened: Counter[str] = Counter()
        self._numbers = count()
        self._services = BatchServices(
            governor=self.governor,
            settler=cast("Settler", FakeSettler()),
            record_failure=lambda _item, _failure: None,
            on_over=lambda batch: self.items.__delitem__(batch.request.batch_id),
        )
        self._kind = a_kind(estimate=ESTIMATE, window=lambda grant: grant.cpu_threads)
        self._hub = FakeHub(self.chance)
        self.pool = GovernedPool(app=None)

    def run(self) -> None:
        """Start the pool and its children."""
        self.pool.on_start()
        self.pool.register_with_event_loop(self._hub)
        self.settle_down()

    spawner: FakeSpawner

    def on_spawner_started(self, spawner: FakeSpawner) -> None:
        """Take the place of the one that has ended."""
        self.spawner = spawner

    def settle_down(self) -> None:
        """Let everybody read until there is nothing more to read, in any order."""
        readers = [self._others_read, self._hub.run_once]
        while readers[0]() or readers[1]():
            self.check_nothing_is_released_early()
            self.chance.shuffle(readers)

    def read_once(self) -> None:
        """Let the main process read what there is, and nobody else."""
        self._hub.run_once()

    def _others_read(self) -> bool:
        # All of them, not only the first that has something.
        has_read = [self.spawner.serve(), *(child.read() for child in self._children())]
        return any(has_read)

    def check_nothing_is_released_early(self) -> None:
        """Compare what is reserved with the live children while not all has been read yet: it may be more."""
        reserved, (held, _) = self.governor.availability().reserved, self.held()

        assert reserved.memory_bytes >= held.memory_bytes
        assert reserved.cpu_threads >= held.cpu_threads

    def check_books(self) -> None:
        """Compare what is reserved with the live children, now that all has been read."""
        availability = self.governor.availability()

        assert (availability.reserved, availability.active_reservations) == self.held()

    def held(self) -> tuple[Resources, int]:
        """Return what live children, and batches that wait for one, hold; and how many batches that is."""
        requests = [child.request for child in self.spawner.children.values()]
        waiting = [batch.request for batch in self.pool._waiting]
        grants = [request.grant for request in [*requests, *waiting] if request is not None]
        return total(grants), len(grants)

    # -- What may happen --------------------------------------------------------------

    def happen(self) -> None:
        """Let one of the events happen that are possible now."""
        events = [self.start, self.start, self.start]
        if any(child.is_at_work for child in self._children()):
            events += [self.finish, self.finish, self.tell, self.kill, self.exit, self.time_out, self.cancel]
        if self._children():
            events += [self.kill_any]
        if self.chance.random() < 0.02:
            events = [self.end_spawner, self.grow, self.shrink]
        event = self.chance.choice(events)
        event()
        self.happened[event.__name__] += 1

    def start(self) -> None:
        """Reserve as the intake does, claim perhaps fewer, dispatch; or give it back, claimed none."""
        if self.pool.idle_children <= 0:
            return
        snapshot = self.machine.look(available_bytes=self.chance.randint(3 * GIB, 12 * GIB))
        waiting_items = self.chance.choice([None, 1, 3, 40])
        _, reservation = self.governor.reserve(snapshot, ESTIMATE, KIND, waiting_items)
        if reservation is None:
            return
        claimed = self.chance.randint(0, reservation.grant.batch)
        if claimed == 0:
            self.governor.release(reservation)
            return
        self.governor.shrink(reservation, claimed)
        items = [
            an_item(str(next(self._numbers)), attempts=self.chance.randint(0, 2)) for _ in range(claimed)
        ]
        batch = RunningBatch(items, self._kind, reservation, self._services)
        self.items[batch.request.batch_id] = items
        self.pool.submit(batch)

    def submit_one(self, name: str) -> None:
        """Have a batch of one item of a kind at work."""
        kind = a_kind(name=name)
        _, reservation = self.governor.reserve(self.machine.look(), kind.estimate, name, 1)
        if reservation is None:
            raise AssertionError("there is no room for it")
        self.governor.shrink(reservation, 1)
        items = [an_item(str(next(self._numbers)))]
        batch = RunningBatch(items, kind, reservation, self._services)
        self.items[batch.request.batch_id] = items
        self.pool.submit(batch)
        self.settle_down()

    def tell(self) -> None:
        """Tell how one item ended, or run out of memory over it and go on."""
        child = self._busy_child()
        if child.open_items:
            child.tell_outcome(self.chance.choice(OUTCOMES))

    def finish(self) -> None:
        """Tell of all items, or of some, and report; some children keep too much memory."""
        child = self._busy_child()
        for _ in range(self.chance.choice([child.open_items, child.open_items, 0])):
            child.tell_outcome(self.chance.choice(OUTCOMES))
        child.tell_report(retire=self.chance.random() < 0.1)

    def kill(self) -> None:
        """Let somebody kill a child at work."""
        self.spawner.end_child(self._busy_child().pid, signal.SIGKILL)

    def kill_any(self) -> None:
        """Let somebody kill a child, at work or idle."""
        self.spawner.end_child(self.chance.choice(self._children()).pid, signal.SIGKILL)

    def exit(self) -> None:
        """Let a library end the process of a batch."""
        self.spawner.end_child(self._busy_child().pid, 1 << 8)

    def time_out(self) -> None:
        """Have a child ended that takes too long; none of its jobs is revoked."""
        self.pool.terminate_job(self._busy_child().pid, signal.SIGKILL)

    def cancel(self) -> None:
        """Revoke a job that runs: Celery acknowledges it, and has its child ended."""
        child = self._busy_child()
        request = child.request
        if request is not None:
            self.chance.choice(self.items[request.batch_id]).request.acknowledged = True
        self.pool.terminate_job(child.pid, signal.SIGTERM)

    def end_spawner(self) -> None:
        """Kill the process that all children come from."""
        self.spawner.end()

    def grow(self) -> None:
        """Have one more child, up to twice as many."""
        if self.pool.limit < 2 * CHILDREN:
            self.pool.grow()

    def shrink(self) -> None:
        """Have one fewer."""
        self.pool.shrink()

    def fill(self) -> None:
        """Have a batch at work in every child."""
        while self.pool.idle_children > 0:
            self.start()
        self.settle_down()

    def finish_all(self) -> None:
        """Let every batch at work end."""
        self.settle_down()
        for child in self._children():
            if child.is_at_work:
                child.tell_report()

    def _children(self) -> list[FakeChild]:
        return list(self.spawner.children.values())

    def _busy_child(self) -> FakeChild:
        return self.chance.choice([child for child in self._children() if child.is_at_work])


def total(grants: list[Grant]) -> Resources:
    """Add up grants, written out so that it shares nothing with the ledger."""
    return Resources(
        memory_bytes=sum(grant.memory_bytes for grant in grants),
        gpu_memory_bytes=sum(grant.gpu_memory_bytes for grant in grants),
        cpu_threads=sum(grant.cpu_threads for grant in grants),
        gpu_slots=sum(grant.gpu_slots for grant in grants),
        io_slots=sum(grant.io_slots for grant in grants),
    )


NewScene = Callable[[int], Scene]


@pytest.fixture
def new_scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[NewScene]:
    """Return a function from a seed to a scene whose pool runs on fakes; closed at the end."""
    scenes: list[Scene] = []
    node = SimpleNamespace(
        cpu_budget_threads=CHILDREN,
        limits=NO_LIMITS,
        held_memory=SimpleNamespace(),
        child_environment=dict,
    )

    monkeypatch.setattr(pool_module, "node_of", lambda _: node)

    def build(seed: int) -> Scene:
        scene = Scene(seed)
        monkeypatch.setattr(pool_module, "SpawnerLink", lambda _: LinkToFake(scene.on_spawner_started))
        scene.run()
        scenes.append(scene)
        return scene

    yield build
    for scene in scenes:
        scene.pool.on_terminate()


@pytest.mark.parametrize(("events", "read_ratio"), [(EVENTS, 1.0), (EVENTS // 4, 0.4)])
def test_after_each_random_event_what_is_reserved_is_what_live_children_hold(
    new_scene: NewScene, events: int, read_ratio: float
) -> None:
    """Ends, kills, time-outs, revocations; also several before anybody reads. In the end it is 0."""
    scene = new_scene(1)
    for _ in range(events):
        scene.happen()
        scene.check_nothing_is_released_early()
        if scene.chance.random() < read_ratio:
            scene.settle_down()
            scene.check_books()
    scene.finish_all()
    scene.settle_down()

    assert scene.governor.availability().reserved == Resources()
    assert len(scene.happened) == 11
    assert min(scene.happened.values()) > 10


def test_it_is_told_when_a_child_that_died_idle_is_replaced(new_scene: NewScene) -> None:
    """And not before: until its end is reported nobody is idle, and whoever looks takes nothing."""
    scene, room = new_scene(2), []
    scene.pool.on_room = lambda: room.append(scene.pool.idle_children)
    for pid in tuple(scene.spawner.children):
        scene.spawner.end_child(pid, signal.SIGKILL)
    scene.read_once()
    idle_before, told_before = scene.pool.idle_children, list(room)
    scene.settle_down()

    assert (idle_before, told_before) == (0, [])
    assert room[-1] == CHILDREN


def test_it_is_told_when_the_pool_grows(new_scene: NewScene) -> None:
    """What waits may start in the new child."""
    scene, room = new_scene(2), []
    scene.pool.on_room = lambda: room.append(scene.pool.idle_children)
    scene.pool.grow()

    assert room == [CHILDREN + 1]


def test_a_warm_shutdown_ends_with_nothing_reserved(new_scene: NewScene) -> None:
    """Every batch ends as it would have; those that waited for a child go back with the lease."""
    scene = new_scene(2)
    scene.fill()
    scene.finish_all()
    scene.pool.on_stop()

    assert scene.governor.availability().reserved == Resources()


def test_what_ends_in_a_warm_shutdown_is_told_at_once(new_scene: NewScene) -> None:
    """Others may wait for it, and the last batch may take days."""
    scene, reserved = new_scene(2), []
    scene.fill()
    scene.finish_all()
    scene.pool.on_served = lambda: reserved.append(scene.governor.availability().active_reservations)
    scene.pool.on_stop()

    assert reserved[-1] == 0


def test_a_cold_shutdown_ends_with_nothing_reserved(new_scene: NewScene) -> None:
    """No batch ends; their children do."""
    scene = new_scene(3)
    scene.fill()
    before = scene.governor.availability().active_reservations
    scene.pool.on_terminate()

    assert before == CHILDREN
    assert scene.governor.availability().reserved == Resources()


def test_a_cold_shutdown_releases_what_waits_for_a_child(new_scene: NewScene) -> None:
    """All children are at work on another."""
    scene = new_scene(11)
    for _ in range(CHILDREN + 1):
        scene.submit_one("gpu")
    waiting = len(scene.pool._waiting)
    scene.pool.on_terminate()

    assert waiting == 1
    assert scene.governor.availability().reserved == Resources()


def test_a_batch_goes_to_an_idle_child_that_has_run_its_kind(new_scene: NewScene) -> None:
    """What a kind loads, such as an OpenCL driver, is then not in every child, and beside no other."""
    scene = new_scene(4)
    ran_by = []
    for name in ("sift", "gpu", "sift", "gpu", "gpu", "sift"):
        scene.submit_one(name)
        [busy] = [child.pid for child in scene.spawner.children.values() if child.is_at_work]
        ran_by.append((name, busy))
        scene.finish_all()
        scene.settle_down()

    assert len(set(ran_by)) == len({pid for _, pid in ran_by}) == 2


def test_a_batch_does_not_wait_for_the_child_that_has_run_its_kind(new_scene: NewScene) -> None:
    """Any idle one takes it."""
    scene = new_scene(5)
    for _ in range(CHILDREN):
        scene.submit_one("gpu")

    assert [child.is_at_work for child in scene.spawner.children.values()] == [True] * CHILDREN


def test_the_children_without_a_batch_are_told(new_scene: NewScene) -> None:
    """What they have is held by no job."""
    scene = new_scene(6)
    scene.submit_one("gpu")
    children = scene.spawner.children.values()

    assert sorted(scene.pool._idle_pids()) == sorted(child.pid for child in children if not child.is_at_work)
    assert len(scene.pool._idle_pids()) == CHILDREN - 1


def has_batch(child: FakeChild) -> bool:
    """Tell whether a batch has reached a child by now."""
    child.read()
    return child.request is not None


def kills_with_each_batch(scene: Scene) -> MemoryKills:
    """Return counters of a kernel that kills at the very moment when a child has its batch."""
    children = list(scene.spawner.children.values())
    return MemoryKills(lambda: sum(has_batch(child) for child in children), lambda: 0)


def end_by_sigkill(scene: Scene) -> Ending:
    """Kill the only child at work; return how its item ended."""
    [item] = [item for items in scene.items.values() for item in items]
    [busy] = [child.pid for child in scene.spawner.children.values() if child.is_at_work]
    scene.spawner.end_child(busy, signal.SIGKILL)
    scene.settle_down()
    return Ending(item.last_end.ending)


def test_a_child_that_is_killed_as_soon_as_it_has_its_batch_was_killed_for_memory(
    new_scene: NewScene,
) -> None:
    """The counter is read before the batch is sent: the kernel may be faster than we are."""
    scene = new_scene(7)
    scene.pool._kills = kills_with_each_batch(scene)
    scene.submit_one("gpu")

    assert end_by_sigkill(scene) is Ending.OUT_OF_MEMORY


def test_a_child_that_we_have_killed_takes_no_step_of_the_counter_from_another(new_scene: NewScene) -> None:
    """Who ended it is known; so the one step is that of the other."""
    scene = new_scene(8)
    counts = [0]
    scene.pool._kills = MemoryKills(lambda: counts[0], lambda: 0)
    for kind in ("killed by us", "killed by the kernel"):
        scene.submit_one(kind)
    ours, kernels = [child.pid for child in scene.spawner.children.values() if child.is_at_work]
    [*_, item] = [item for items in scene.items.values() for item in items]
    counts[0] = 1
    scene.pool.terminate_job(ours, signal.SIGKILL)
    scene.settle_down()
    scene.spawner.end_child(kernels, signal.SIGKILL)
    scene.settle_down()

    assert item.last_end.ending is Ending.OUT_OF_MEMORY


@pytest.mark.parametrize(("above_bytes", "ending"), [(0, Ending.KILLED), (1, Ending.OUT_OF_MEMORY_SUSPECTED)])
def test_a_childs_peak_is_held_against_what_its_batch_has_reserved(
    new_scene: NewScene, above_bytes: int, ending: Ending
) -> None:
    """No counter has moved, but it had far more than it said."""
    scene = new_scene(9)
    scene.submit_one("gpu")
    reserved_bytes = scene.governor.availability().reserved.memory_bytes
    scene.spawner.peak_bytes = reserved_bytes + CODE_BYTES + above_bytes

    assert end_by_sigkill(scene) is ending


@pytest.mark.parametrize("who_ends", ["child", "spawner"])
def test_what_a_child_had_sent_before_its_end_counts(new_scene: NewScene, who_ends: str) -> None:
    """Also where we hear of the end first."""
    scene = new_scene(10)
    scene.submit_one("gpu")
    [item] = [item for items in scene.items.values() for item in items]
    [busy] = [child for child in scene.spawner.children.values() if child.is_at_work]
    busy.tell_outcome({"action": "done"})
    if who_ends == "child":
        scene.spawner.end_child(busy.pid, signal.SIGKILL)
        scene.spawner.serve()
    else:
        scene.spawner.end()
    scene.pool._on_spawner()

    assert (item.request.told[-1], item.last_end) == ("succeeded", None)


def a_batch_at_work(scene: Scene, items: int = 3) -> tuple[FakeChild, list[Any]]:
    """Have a batch of three items at work in a warm child; return the child and the items."""
    kind = a_kind()
    _, reservation = scene.governor.reserve(scene.machine.look(), kind.estimate, kind.name, items)
    assert reservation is not None
    batch = RunningBatch([an_item(str(n)) for n in range(items)], kind, reservation, scene._services)
    scene.items[batch.request.batch_id] = scene_items = list(batch._open.values())
    scene.pool.submit(batch)
    scene.settle_down()
    [child] = [child for child in scene.spawner.children.values() if child.is_at_work]
    pool_child(scene, child).start_item()
    return child, scene_items


def pool_child(scene: Scene, child: FakeChild) -> PoolChild:
    """Return what the pool knows of a child."""
    return next(one for one in scene.pool._children.values() if one.pid == child.pid)


def let_pass(scene: Scene, child: FakeChild, seconds: float) -> None:
    """Let so much time pass for what a child has at work, and let the pool look."""
    clock = pool_child(scene, child).clock
    assert clock is not None
    clock.since_ns -= round(seconds * 1e9)
    scene.pool._on_tick()


def endings(scene: Scene) -> list[tuple[str, str]]:
    """Return (item, action) of what was settled."""
    entries = cast("FakeSettler", scene._services.settler).entries
    return [(entry["item"], entry["action"]) for entry in entries if "item" in entry]


@pytest.mark.parametrize(("seconds", "warned"), [(59, 0), (61, 1), (89, 1)])
def test_at_its_soft_limit_a_child_is_warned_and_lives(
    new_scene: NewScene, seconds: float, warned: int
) -> None:
    """The kind of these tests has 60 s and 90 s."""
    scene = new_scene(12)
    child, _ = a_batch_at_work(scene)
    let_pass(scene, child, seconds)
    scene.settle_down()

    assert (scene.spawner.warned, child.is_alive) == ([child.pid] * warned, True)


def test_at_its_hard_limit_an_item_fails_and_the_others_go_back(new_scene: NewScene) -> None:
    """What is reserved is released when the child is gone, not before."""
    scene = new_scene(13)
    child, items = a_batch_at_work(scene)
    child.tell_outcome({"action": "done"})
    scene.settle_down()
    let_pass(scene, child, 91)
    scene.settle_down()

    assert endings(scene) == [("0", "done"), ("1", "failed"), ("2", "requeue")]
    assert (items[1].last_end.ending, items[1].attempts, items[2].attempts) == (Ending.TIME_LIMIT, 1, 0)
    assert scene.governor.availability().reserved == Resources()


def test_each_outcome_begins_the_time_of_the_next_item(new_scene: NewScene) -> None:
    """A batch of many is not ended for what one may take."""
    scene = new_scene(14)
    child, _ = a_batch_at_work(scene)
    for _ in range(2):
        let_pass(scene, child, 59)
        child.tell_outcome({"action": "done"})
        scene.settle_down()
    let_pass(scene, child, 59)

    assert (scene.spawner.warned, child.is_alive) == ([], True)


def test_an_item_that_ends_as_its_child_is_killed_is_done_and_nobody_is_blamed(new_scene: NewScene) -> None:
    """The next one has just begun."""
    scene = new_scene(15)
    child, items = a_batch_at_work(scene)
    child.tell_outcome({"action": "done"})
    let_pass(scene, child, 91)
    scene.settle_down()

    assert endings(scene) == [("0", "done"), ("1", "requeue"), ("2", "requeue")]
    assert [item.attempts for item in items] == [0, 0, 0]


def test_the_first_batch_of_a_kind_has_time_to_load_it(new_scene: NewScene) -> None:
    """Until the child says that it is warm, or five minutes have passed."""
    scene = new_scene(16)
    scene.submit_one("new")
    [child] = [child for child in scene.spawner.children.values() if child.is_at_work]
    let_pass(scene, child, 300 + 59)
    lives_on = child.is_alive
    let_pass(scene, child, 32)
    scene.settle_down()

    assert (lives_on, child.is_alive) == (True, False)


def test_a_child_that_does_not_heed_a_signal_is_killed(new_scene: NewScene) -> None:
    """A revoked job is not waited for, whatever signal was asked for."""
    scene = new_scene(17)
    child, _ = a_batch_at_work(scene)
    scene.spawner.unheeded = {signal.SIGINT}
    scene.pool.terminate_job(child.pid, signal.SIGINT)
    scene.pool._on_tick()
    scene.settle_down()
    lived_on = child.is_alive
    told = pool_child(scene, child)
    told.told_to_end_ns = (told.told_to_end_ns or 0) - 3_000_000_000
    scene.pool._on_tick()
    scene.settle_down()

    assert (lived_on, child.is_alive) == (True, False)
