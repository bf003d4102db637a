"""Each item of a batch ends in one settlement, and the reservation is released exactly once."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from governor.governor import Governor
from governor.ledger import Reservation, ReservationState
from governor.model import Estimate
from governor.planning.profile import CellKey, Durations, ProfileSet
from tasks.errors import Failure, Reason
from tasks.store.probe import StoreFault
from tests.unit.governor.builders import Machine, a_governor
from tests.unit.worker.builders import KIND, FakeRequest, a_kind, an_item
from worker.claimed_item import ClaimedItem
from worker.deaths import Death, Ending
from worker.frames import BatchReport
from worker.planning import NodePlanning
from worker.planning_settings import MarginLearning, PlanningSettings
from worker.running_batch import BatchServices, RunningBatch
from worker.settle import Settler
from worker.store_health import StoreAwayError, StoreHealth, StoreSenses

REPORT = BatchReport(peak_bytes=1000, recorded_items=3, retire=False)
RETIRING = BatchReport(peak_bytes=1000, recorded_items=3, retire=True)
KILLED = Death(ending=Ending.KILLED, cause="killed by SIGKILL")
TERMINATED = Death(ending=Ending.KILLED, cause="killed by SIGTERM")
OUT_OF_MEMORY = {"action": "suspect", "ending": "allocation_failed", "cause": "the job ran out of memory"}
FULL = StoreFault(cause="the disk is full", cure="free space on its disk", free_bytes=0, total_bytes=2**20)
FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")


class FakeSettler:
    """Keeps what was settled."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any]) -> None:
        """Keep an entry."""
        self.entries.append(entry)


@dataclass
class Scene:
    """A batch that is under way on a node of its own."""

    batch: RunningBatch
    items: list[ClaimedItem]
    governor: Governor
    reservation: Reservation
    settler: FakeSettler
    store: StoreHealth
    recorded: list[tuple[str, Failure]] = field(default_factory=list)
    over: list[RunningBatch] = field(default_factory=list)
    is_store_away: bool = False
    """No failure can be recorded."""

    @property
    def settled(self) -> list[tuple[str, str]]:
        """Return (item, action) of what was settled, the batch's own entry left out."""
        return [(entry["item"], entry["action"]) for entry in self.settler.entries if "item" in entry]

    @property
    def is_released(self) -> bool:
        """Tell whether the reservation has been given back."""
        return self.reservation.state is ReservationState.RELEASED

    def request(self, index: int) -> FakeRequest:
        """Return Celery's request of an item."""
        return cast("FakeRequest", self.items[index].request)


def a_scene(
    items: list[ClaimedItem] | None = None, *, window: int = 1, planning: NodePlanning | None = None
) -> Scene:
    """Build a batch of three items (or these) whose callback works on ``window`` at a time."""
    items = items or [an_item("a"), an_item("b"), an_item("c")]
    machine = Machine()
    governor = a_governor(machine)
    kind = a_kind(window=lambda _grant: window)
    _, reservation = governor.reserve(machine.look(), kind.estimate, KIND, waiting_items=len(items))
    assert reservation is not None
    settler = FakeSettler()
    recorded: list[tuple[str, Failure]] = []
    over: list[RunningBatch] = []
    store = StoreHealth(Path("/store"), "s1", lambda: None, StoreSenses(start=lambda _run: None))

    def record(item: ClaimedItem, failure: Failure) -> None:
        if built.is_store_away:
            raise StoreAwayError("the disk is full")
        recorded.append((item.name, failure))

    services = BatchServices(
        governor=governor,
        settler=cast("Settler", settler),
        record_failure=record,
        store=store,
        on_over=over.append,
        node="pc1",
        planning=planning,
    )
    batch = RunningBatch(items, kind, reservation, services)
    built = Scene(batch, items, governor, reservation, settler, store, recorded, over)
    return built


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Return a batch of three; at the end the governor's books must be right."""
    scene = a_scene()
    yield scene
    scene.governor.check()


def test_the_request_carries_payloads_places_and_the_grant(scene: Scene) -> None:
    """All that the child will know."""
    assert [place and place.item for place in scene.batch.request.places] == ["a", "b", "c"]
    assert scene.batch.request.payloads == ({"number": 1},) * 3
    assert scene.batch.request.grant == scene.reservation.grant


def test_a_started_batch_tells_celery_of_each_item(scene: Scene) -> None:
    """Flower sees which process runs what."""
    scene.batch.on_started(77)

    assert [scene.request(index).told for index in range(3)] == [["accepted by 77"]] * 3


def test_a_finished_item_is_settled_with_what_follows(scene: Scene) -> None:
    """Pushes, continuation and progress go into the one settlement."""
    outcome = {"action": "done", "pushes": [{"item": "x"}], "continuation": {"item": "y"}, "continue_at": 5}
    scene.batch.on_outcome(1, {**outcome, "progress": {"phase": "model"}})

    (entry,) = scene.settler.entries
    assert (entry["item"], entry["action"], entry["pushes"]) == ("b", "done", [{"item": "x"}])
    assert (json.loads(entry["continuation"]), entry["continue_at"]) == ({"item": "y"}, 5)
    assert entry["progress"] == {"phase": "model"}
    assert scene.request(1).told == ["succeeded"]
    assert scene.request(1).acknowledged


def test_an_item_whose_input_is_missing_leaves_the_queue(scene: Scene) -> None:
    """The next plan sees what has to be made again."""
    scene.batch.on_outcome(0, {"action": "not_ready", "cause": "gone"})

    assert scene.settled == [("a", "not_ready")]


def test_a_failed_item_is_settled_with_its_report(scene: Scene) -> None:
    """The child has recorded it in the store already."""
    scene.batch.on_outcome(0, {"action": "failed", "failure": FAILURE.to_dict()})

    assert scene.settled == [("a", "failed")]
    assert json.loads(scene.settler.entries[0]["report"])["cause"] == "torn"
    assert scene.request(0).told == ["task-failed"]
    assert scene.recorded == []


def test_an_item_that_needs_more_goes_back_with_its_estimate(scene: Scene) -> None:
    """No attempt is counted: nothing went wrong."""
    need = Estimate(memory_fixed_bytes=scene.reservation.grant.memory_bytes + 1).to_header()
    scene.batch.on_outcome(0, {"action": "needs", "estimate": need})

    (entry,) = scene.settler.entries
    assert (entry["action"], entry["attempts"], entry["estimate"]) == ("requeue", 0, need)
    assert scene.request(0).told == ["task-retried"]


def test_an_item_that_asks_for_no_more_than_it_had_fails(scene: Scene) -> None:
    """It would come back for ever."""
    need = Estimate(memory_fixed_bytes=scene.reservation.grant.memory_bytes).to_header()
    scene.batch.on_outcome(0, {"action": "needs", "estimate": need})

    assert scene.settled == [("a", "failed")]
    assert [(name, failure.reason) for name, failure in scene.recorded] == [("a", Reason.INTERNAL_ERROR)]


@pytest.mark.parametrize(("attempts", "delay_ms"), [(0, 1_000), (1, 5_000)])
def test_an_item_whose_file_cannot_be_used_is_parked_for_longer_each_time(
    attempts: int, delay_ms: int
) -> None:
    """It waits in Redis, not in a worker."""
    scene = a_scene([an_item("a", attempts=attempts)])
    scene.batch.on_outcome(0, {"action": "transient", "cause": "the disk reports an input/output error"})

    (entry,) = scene.settler.entries
    assert (entry["action"], entry["attempts"], entry["delay_ms"]) == ("park", 1, delay_ms)
    assert scene.request(0).told == ["task-retried"]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"action": "transient", "cause": "cannot use x: access is denied"}, Reason.STORE_UNAVAILABLE),
        (OUT_OF_MEMORY, Reason.WORKER_LOST),
    ],
)
def test_the_third_attempt_is_the_last(outcome: dict[str, Any], reason: Reason) -> None:
    """The failure is recorded here, for no child could, and names the cause."""
    scene = a_scene([an_item("a", attempts=2)])
    scene.batch.on_outcome(0, outcome)

    assert scene.settled == [("a", "failed")]
    ((name, failure),) = scene.recorded
    assert (name, failure.reason) == ("a", reason)
    assert outcome["cause"] in failure.cause
    assert json.loads(scene.settler.entries[0]["report"])["attempts"] == 3


def test_a_suspect_counts_an_attempt(scene: Scene) -> None:
    """It ran out of memory, but the child lives."""
    scene.batch.on_outcome(0, OUT_OF_MEMORY)

    assert scene.settler.entries[0]["attempts"] == 1
    assert scene.settled == [("a", "requeue")]


@pytest.mark.parametrize("outcome", [{"action": "done"}, {"action": "failed", "failure": FAILURE.to_dict()}])
def test_a_job_that_was_revoked_while_it_ran_is_cancelled(scene: Scene, outcome: dict[str, Any]) -> None:
    """Whatever its outcome, Celery has told already that it was revoked."""
    scene.items[0].request.acknowledged = True
    scene.batch.on_outcome(0, outcome)

    assert scene.settled == [("a", "failed")]
    assert [(name, failure.reason) for name, failure in scene.recorded] == [("a", Reason.CANCELLED)]
    assert scene.request(0).told == []


def test_what_the_callback_did_not_reach_goes_back_untouched(scene: Scene) -> None:
    """An error at the first item says nothing about the others."""
    scene.batch.on_outcome(0, {"action": "failed", "failure": FAILURE.to_dict()})
    scene.batch.on_report(REPORT)

    assert scene.settled == [("a", "failed"), ("b", "requeue"), ("c", "requeue")]
    assert [entry["attempts"] for entry in scene.settler.entries[1:3]] == [0, 0]


@pytest.mark.parametrize(("window", "suspects"), [(1, ["b"]), (2, ["b", "c"]), (9, ["b", "c"])])
def test_the_window_of_a_dead_child_is_suspect_and_the_rest_is_not(window: int, suspects: list[str]) -> None:
    """What was finished is finished; what the callback worked on has an attempt counted."""
    scene = a_scene(window=window)
    scene.batch.on_outcome(0, {"action": "done"})
    scene.batch.on_child_gone(KILLED, on_request=False)

    attempts = {entry["item"]: entry["attempts"] for entry in scene.settler.entries[1:]}
    assert attempts == {item: int(item in suspects) for item in ("b", "c")}
    assert scene.recorded == []


@pytest.mark.parametrize(("window", "lost"), [(1, [1, 0, 0]), (2, [1, 1, 0])])
def test_a_dead_spawner_proves_nothing_but_is_counted(window: int, lost: list[int]) -> None:
    """A lost node for what was worked on, an attempt for nobody; what was not begun goes back untouched."""
    scene = a_scene([an_item("a", attempts=2), an_item("b"), an_item("c")], window=window)
    scene.batch.on_child_gone(Death(ending=Ending.SPAWNER_LOST, cause="x"), on_request=False)

    assert scene.settled == [("a", "requeue"), ("b", "requeue"), ("c", "requeue")]
    assert [entry.get("lost", 0) for entry in scene.settler.entries] == lost
    assert scene.settler.entries[0]["lost_on"] == '"pc1"'
    assert [entry["attempts"] for entry in scene.settler.entries] == [0, 0, 0]
    assert scene.recorded == []


OVER_LIMIT = Death(ending=Ending.TIME_LIMIT, cause="exceeded its hard time limit of 90 s", peak_bytes=7)


def test_an_item_that_hangs_alone_fails_at_once(scene: Scene) -> None:
    """Each further attempt would take as long again; the others of its batch are not to blame."""
    scene.batch.on_child_gone(OVER_LIMIT, on_request=False)

    assert scene.settled == [("a", "failed"), ("b", "requeue"), ("c", "requeue")]
    assert [failure.reason for _, failure in scene.recorded] == [Reason.TIME_LIMIT]
    report = json.loads(scene.settler.entries[0]["report"])
    assert (report["ending"], report["attempts"], report["peak_bytes"]) == ("time_limit", 1, 7)
    assert [entry["attempts"] for entry in scene.settler.entries[1:]] == [0, 0]


def test_of_several_that_hang_each_is_tried_alone() -> None:
    """Which of them it was is seen then; what was not begun goes back untouched."""
    scene = a_scene(window=2)
    scene.batch.on_child_gone(OVER_LIMIT, on_request=False)

    assert scene.settled == [("a", "requeue"), ("b", "requeue"), ("c", "requeue")]
    assert [entry["attempts"] for entry in scene.settler.entries] == [1, 1, 0]
    assert scene.recorded == []


def test_the_limit_is_that_of_the_items_at_work() -> None:
    """Of several the longest; when all are through, that of the last."""
    items = [an_item("a"), an_item("b"), an_item("c")]
    for item, hard_seconds in zip(items, (500.0, 200.0, 300.0), strict=True):
        item.request.time_limits = (hard_seconds, None)
    alone, together = a_scene(items), a_scene(items, window=2)
    together.batch.on_outcome(0, {"action": "done"})

    assert alone.batch.time_limit().hard_seconds == 500
    assert together.batch.time_limit().hard_seconds == 300
    for index in (1, 2):
        together.batch.on_outcome(index, {"action": "done"})
    assert together.batch.time_limit().hard_seconds == 300


def test_a_job_that_was_revoked_with_its_spawner_is_cancelled(scene: Scene) -> None:
    """Nobody waits for it."""
    scene.items[0].request.acknowledged = True
    scene.batch.on_child_gone(Death(ending=Ending.SPAWNER_LOST, cause="x"), on_request=False)

    assert scene.settled[0] == ("a", "failed")


def reported(scene: Scene) -> tuple[Any, ...]:
    """Return what the report of the first settled item says of its attempt."""
    report = json.loads(scene.settler.entries[0]["report"])
    return tuple(report[name] for name in ("ending", "node", "reserved_bytes", "peak_bytes"))


def test_an_item_that_fails_by_itself_is_reported_without_a_peak(scene: Scene) -> None:
    """Its batch is measured later."""
    scene.batch.on_outcome(0, {"action": "failed", "failure": FAILURE.to_dict()})

    assert reported(scene) == ("error", "pc1", scene.reservation.grant.memory_bytes, None)


@pytest.mark.parametrize(
    ("ending", "told"),
    [(Ending.OUT_OF_MEMORY, "out_of_memory"), (Ending.KILLED, "killed"), (Ending.TIME_LIMIT, "time_limit")],
)
def test_what_dies_with_its_child_is_reported_with_its_peak(ending: Ending, told: str) -> None:
    """The spawner has reaped it, and knows."""
    scene = a_scene([an_item("a", attempts=2)])
    scene.batch.on_child_gone(Death(ending=ending, cause="x", peak_bytes=77), on_request=False)

    assert reported(scene) == (told, "pc1", scene.reservation.grant.memory_bytes, 77)


def test_a_revoked_job_that_ran_is_reported_with_its_peak(scene: Scene) -> None:
    """We had its child killed."""
    scene.items[0].request.acknowledged = True
    scene.batch.on_child_gone(replace(TERMINATED, peak_bytes=77), on_request=True)

    assert reported(scene) == ("cancelled", "pc1", scene.reservation.grant.memory_bytes, 77)


def test_a_child_that_dies_over_an_item_for_the_third_time_ends_it() -> None:
    """Poison does not loop, and takes no other item with it."""
    scene = a_scene([an_item("a", attempts=2), an_item("b")])
    scene.batch.on_child_gone(KILLED, on_request=False)

    assert scene.settled == [("a", "failed"), ("b", "requeue")]
    assert "killed by SIGKILL" in scene.recorded[0][1].cause


def test_a_child_that_was_killed_for_one_item_makes_no_suspects(scene: Scene) -> None:
    """revoke(terminate) of one job is not the fault of the one before it."""
    scene.items[1].request.acknowledged = True
    scene.batch.on_child_gone(TERMINATED, on_request=True)

    assert sorted(scene.settled) == [("a", "requeue"), ("b", "failed"), ("c", "requeue")]
    assert {entry.get("attempts", 0) for entry in scene.settler.entries} == {0}


PROVEN = Death(ending=Ending.OUT_OF_MEMORY, cause="killed by the kernel: out of memory (proven)")


def estimate_given_back(scene: Scene, item: str = "a") -> Estimate:
    """Return the estimate that an item was given back with."""
    (entry,) = [entry for entry in scene.settler.entries if entry.get("item") == item]
    return Estimate.from_header(entry["estimate"])


def test_an_item_whose_memory_ran_out_goes_back_with_half_more() -> None:
    """4000 bytes are charged for one; the others of its batch go back as they were."""
    scene = a_scene()
    scene.batch.on_child_gone(PROVEN, on_request=False)

    assert estimate_given_back(scene).memory_bytes(1) == 6000
    assert [("estimate" in entry, "last_end" in entry) for entry in scene.settler.entries] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    assert scene.governor.history(KIND) == ()


@pytest.mark.parametrize(
    ("peak_bytes", "window", "more_bytes"), [(50_000, 1, 50_000), (50_000, 2, 26_000), (50_000, 9, 18_000)]
)
def test_the_dead_batchs_own_peak_is_a_floor_which_its_suspects_share(
    peak_bytes: int, window: int, more_bytes: int
) -> None:
    """What is known to be needed is reserved the next time."""
    scene = a_scene(window=window)
    scene.batch.on_child_gone(replace(PROVEN, peak_bytes=peak_bytes), on_request=False)

    assert estimate_given_back(scene).memory_bytes(1) == more_bytes


def test_the_largest_peak_of_the_kind_on_this_node_is_a_floor() -> None:
    """Another batch has shown what such jobs take."""
    scene = a_scene()
    record = {"items": 1, "duration_ns": 1, "reserved_bytes": 1, "threads": 1}
    for peak_bytes in (70_000, 300, None):
        scene.governor.record_batch(KIND, peak_memory_bytes=peak_bytes, **record)
    scene.batch.on_child_gone(PROVEN, on_request=False)

    assert estimate_given_back(scene).memory_bytes(1) == 70_000


def test_an_estimate_grows_from_what_the_message_carries_by_now() -> None:
    """The second time from the first time's larger one."""
    moved = Estimate(memory_fixed_bytes=2000, memory_per_item_bytes=4000, max_batch=4)
    scene = a_scene([an_item("a", attempts=1, estimate=moved)])
    scene.batch.on_child_gone(PROVEN, on_request=False)

    assert estimate_given_back(scene).memory_bytes(1) == 9000


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.EXITED, Ending.NO_RESULT])
def test_an_item_that_died_of_something_else_keeps_its_estimate(ending: Ending) -> None:
    """More memory would not help it."""
    scene = a_scene()
    scene.batch.on_child_gone(Death(ending=ending, cause="x", peak_bytes=10**9), on_request=False)

    assert not any("estimate" in entry for entry in scene.settler.entries)
    assert scene.governor.history(KIND) == ()


@pytest.mark.parametrize("above_bytes", [0, 1])
def test_a_batch_that_died_of_more_than_its_reservation_teaches(above_bytes: int) -> None:
    """The next batches of its kind are smaller; one that stayed within it teaches nothing."""
    scene = a_scene()
    peak_bytes = scene.reservation.grant.memory_bytes + above_bytes
    scene.batch.on_outcome(0, {"action": "done"})
    scene.batch.on_child_gone(replace(PROVEN, peak_bytes=peak_bytes), on_request=False)

    peaks = [record.peak_memory_bytes for record in scene.governor.history(KIND)]
    assert peaks == [peak_bytes][:above_bytes]


@pytest.mark.parametrize(("done", "recorded_items"), [(0, 1), (2, 2), (3, 3)])
def test_a_batch_that_died_teaches_whatever_it_had_finished(done: int, recorded_items: int) -> None:
    """A record of no items would be none."""
    scene = a_scene()
    for index in range(done):
        scene.batch.on_outcome(index, {"action": "done"})
    scene.batch.on_child_gone(replace(PROVEN, peak_bytes=10**9), on_request=False)

    assert [record.items for record in scene.governor.history(KIND)] == [recorded_items]


def test_the_third_death_for_memory_is_reported_with_node_and_amounts() -> None:
    """The cure is not the log, but a larger machine."""
    scene = a_scene([an_item("a", attempts=2)])
    scene.batch.on_child_gone(replace(PROVEN, peak_bytes=77), on_request=False)

    report = json.loads(scene.settler.entries[0]["report"])
    assert report["last_end"] == {
        "ending": "out_of_memory",
        "node": "pc1",
        "reserved_bytes": scene.reservation.grant.memory_bytes,
        "peak_bytes": 77,
    }
    assert "out of memory (proven)" in report["cause"]
    assert "more free memory" in report["cure"]


def test_memory_that_was_refused_counts_like_memory_that_was_taken_away(scene: Scene) -> None:
    """The child lives, and tells what it had."""
    scene.batch.on_outcome(0, OUT_OF_MEMORY | {"peak_bytes": 30_000})

    assert estimate_given_back(scene).memory_bytes(1) == 30_000
    assert json.loads(scene.settler.entries[0]["last_end"])["ending"] == "allocation_failed"


def test_a_report_releases_the_reservation_once(scene: Scene) -> None:
    """The child is free for the next batch; its later death is not of this one."""
    scene.batch.on_report(REPORT)
    assert scene.is_released
    scene.batch.on_child_gone(KILLED, on_request=False)

    assert scene.over == [scene.batch]
    assert scene.governor.availability().reserved.memory_bytes == 0


def test_a_retiring_child_holds_its_reservation_until_it_is_gone(scene: Scene) -> None:
    """It keeps memory: only its end gives that back."""
    scene.batch.on_report(RETIRING)
    seen = [(scene.is_released, len(scene.over))]
    scene.batch.on_child_gone(KILLED, on_request=False)
    seen.append((scene.is_released, len(scene.over)))

    assert seen == [(False, 0), (True, 1)]
    assert scene.over == [scene.batch]


def test_a_dead_child_releases_its_reservation(scene: Scene) -> None:
    """It has been reaped: its memory is free."""
    scene.batch.on_child_gone(KILLED, on_request=False)

    assert scene.is_released
    assert scene.over == [scene.batch]


def test_a_batch_is_recorded_with_what_was_measured(scene: Scene) -> None:
    """The governor learns of it, and the project keeps the worst."""
    grant = scene.reservation.grant
    scene.batch.on_report(REPORT)

    (record,) = scene.governor.history(KIND)
    assert (record.items, record.batch, record.peak_memory_bytes) == (3, grant.batch, 1000)
    assert scene.settler.entries[-1] == {
        "action": "batch",
        "project": "p",
        "kind": KIND,
        "reserved_bytes": grant.memory_bytes,
        "peak_bytes": 1000,
        "ratio_permille": 1000 * 1000 // grant.memory_bytes,
        "items": REPORT.worked_items,
        "busy_us": record.duration_ns // 1000,
    }


def test_a_ratio_is_rounded_up() -> None:
    """One byte too many must not read as exactly full."""
    scene = a_scene()
    reserved_bytes = scene.reservation.grant.memory_bytes
    scene.batch.on_report(BatchReport(peak_bytes=reserved_bytes + 1, recorded_items=1, retire=False))

    assert scene.settler.entries[-1]["ratio_permille"] == 1001


# -- The store as a whole ---------------------------------------------------------------


def test_an_item_without_its_store_is_parked_and_counts_nothing() -> None:
    """Whatever its attempts were; the node waits for the store from now on."""
    scene = a_scene([an_item("a", attempts=2)])
    scene.batch.on_outcome(0, {"action": "store_away", "fault": asdict(FULL)})

    (entry,) = scene.settler.entries
    assert (entry["action"], entry["attempts"]) == ("park", 0)
    assert scene.request(0).told == ["task-retried"]
    assert scene.store.waits_for().startswith("the store: the disk is full")


def test_the_rest_of_a_batch_without_its_store_goes_back_untouched(scene: Scene) -> None:
    """It was not begun."""
    scene.batch.on_outcome(0, {"action": "store_away", "fault": asdict(FULL)})
    scene.batch.on_report(REPORT)

    assert scene.settled == [("a", "park"), ("b", "requeue"), ("c", "requeue")]
    assert [entry["attempts"] for entry in scene.settler.entries if "item" in entry] == [0, 0, 0]
    assert scene.is_released


def test_an_end_that_cannot_be_recorded_for_want_of_the_store_is_none_yet() -> None:
    """The item comes back with the attempts it had: no plan would know that it has failed."""
    scene = a_scene([an_item("a", attempts=2)])
    scene.is_store_away = True
    scene.batch.on_child_gone(KILLED, on_request=False)

    (entry,) = scene.settler.entries
    assert (entry["action"], entry["attempts"], scene.recorded) == ("park", 0, [])
    assert scene.is_released


def test_the_request_names_the_store_it_is_for(scene: Scene) -> None:
    """The child writes in no other."""
    assert scene.batch.request.store_id == "s1"


@pytest.mark.parametrize(
    ("outcome", "wait_seconds"), [({"action": "done"}, 1), ({"action": "not_ready", "cause": "gone"}, 4)]
)
def test_only_a_result_shows_that_the_store_is_well_again(outcome: dict[str, Any], wait_seconds: int) -> None:
    """It was written; whatever else a job tells could be told without a store."""
    scene = a_scene()
    for _ in range(2):
        scene.store.next_wait_seconds()
    scene.batch.on_outcome(0, outcome)

    assert scene.store.next_wait_seconds() == wait_seconds


def a_planning() -> NodePlanning:
    """Return planning that knows the kind, in batches of four or less."""
    durations = Durations(p50_ns=10**9, p95_ns=10**9, p99_ns=10**9)
    profiles = ProfileSet(cells={CellKey(kind=KIND, batch_class=4): durations})
    return NodePlanning(PlanningSettings(margin_learning=MarginLearning()), profiles)


def end(scene: Scene, *, actions: tuple[str, ...] = ("done",) * 3, worked_items: int = 3) -> None:
    """Settle the items in turn, and report that so many were done by work."""
    for index, action in enumerate(actions):
        scene.batch.on_outcome(index, {"action": action, "cause": "x"})
    scene.batch.on_report(replace(REPORT, worked_items=worked_items))


def test_a_batch_of_real_work_teaches() -> None:
    """Its plan is that of its dispatch: three items, nothing beside it."""
    planning, told = a_planning(), []
    planning.on_observation = lambda: told.append(planning.observations)
    end(a_scene(planning=planning))

    assert (planning.observations, planning.factor_percent(KIND)) == (1, 110)
    assert told == [1]


def test_the_projected_end_is_the_cautious_one() -> None:
    """Three items of a second, and the margin, from the dispatch on."""
    before_ns = time.monotonic_ns()
    end_ns = a_scene(planning=a_planning()).batch.projected_end_ns

    assert end_ns is not None
    assert before_ns <= end_ns - 3_300_000_000 <= time.monotonic_ns()


@dataclass
class SpiedPlanning:
    """Planning that knows nothing, and remembers what it was asked."""

    asked: list[tuple[int, int, str]] = field(default_factory=list)

    def plan(self, _kind: str, *, items: int, others: int, variant: str) -> None:
        """Remember."""
        self.asked.append((items, others, variant))


@pytest.mark.parametrize(("needs_opencl", "variant"), [(False, "cpu"), (True, "gpu")])
def test_a_plan_is_of_the_batch_as_it_is_dispatched(needs_opencl: bool, variant: str) -> None:  # noqa: FBT001 - a parameter
    """Its items, where it runs, and how many others run beside it: here none, then one."""
    spied = SpiedPlanning()
    scene = a_scene(planning=cast("NodePlanning", spied))
    machine = Machine()
    kind = a_kind(needs_opencl=needs_opencl)
    _, reservation = scene.governor.reserve(machine.look(), kind.estimate, KIND, waiting_items=1)
    assert reservation is not None
    RunningBatch([an_item("d")], kind, reservation, scene.batch._services)
    scene.governor.release(reservation)

    assert spied.asked == [(3, 0, "cpu"), (1, 1, variant)]


@pytest.mark.parametrize("worked_items", [0, 2])
def test_what_was_there_already_teaches_nothing(worked_items: int) -> None:
    """One such item of three is enough."""
    planning = a_planning()
    end(a_scene(planning=planning), worked_items=worked_items)

    assert planning.observations == 0


def test_a_batch_with_a_failure_teaches_nothing() -> None:
    """The child counts what was done; what was not is no work."""
    planning = a_planning()
    end(a_scene(planning=planning), actions=("done", "transient", "done"), worked_items=2)

    assert planning.observations == 0


@pytest.mark.parametrize("history", [{"attempts": 1}, {"lost": 1}])
def test_a_further_attempt_teaches_nothing(history: dict[str, int]) -> None:
    """It runs alone, or with more memory."""
    planning = a_planning()
    item = an_item("a")
    for name, count in history.items():
        setattr(item, name, count)
    end(a_scene([item], planning=planning), actions=("done",), worked_items=1)

    assert planning.observations == 0


def test_a_batch_whose_child_died_teaches_nothing() -> None:
    """How long it took says nothing of the work."""
    planning = a_planning()
    scene = a_scene(planning=planning)
    scene.batch.on_outcome(0, {"action": "done"})
    scene.batch.on_child_gone(KILLED, on_request=False)

    assert planning.observations == 0


def test_without_planning_no_end_is_projected(scene: Scene) -> None:
    """Off is absent."""
    assert scene.batch.projected_end_ns is None
