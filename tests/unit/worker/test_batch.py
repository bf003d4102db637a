"""A batch runs once in its child; whatever goes wrong costs the item it was at, and no other."""

import errno
import mmap
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import cv2
import pytest
from celery.exceptions import SoftTimeLimitExceeded

from governor.model import Estimate, Grant
from tasks.errors import Failure, MissingArtefactError, Reason, StoreError
from tasks.kind import Done, Failed, Kind, Needs, NotReady, Outcome
from tasks.parameters import ProjectParameters
from tasks.store import Store
from tests.unit.worker.builders import GRANT, KIND, NumberPayload, a_job, a_kind
from worker import keys
from worker.batch import BatchRunner, outcome_frame
from worker.deaths import Ending
from worker.frames import BatchReport, BatchRequest, Place, encode

FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")
Callback = Callable[[Sequence[NumberPayload], Grant, Store], Iterator[Outcome]]
Emitted = list[tuple[int, dict[str, Any]]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with the project p."""
    store = Store(tmp_path / "store")
    store.create()
    store.project("p").create(ProjectParameters(), [])
    return store


def run_batch(
    store: Store, kind: Kind, payloads: Sequence[dict[str, Any]], place: Place | None = None
) -> tuple[BatchReport, Emitted]:
    """Run one batch; return its report and what was emitted."""
    places = tuple(place or Place(project="p", stage="match", item=str(n)) for n in range(len(payloads)))
    request = BatchRequest(batch_id="1", kind=kind.name, payloads=tuple(payloads), places=places, grant=GRANT)
    emitted: Emitted = []

    def emit(index: int, outcome: dict[str, Any]) -> None:
        encode(outcome)  # As a child does.
        emitted.append((index, outcome))

    return BatchRunner({kind.name: kind}, store).run(request, emit), emitted


def yielding(*outcomes: Outcome | Exception) -> Callback:
    """Return a callback that yields these outcomes, and raises where one is an error."""

    def run(_payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome

    return run


def numbers(count: int) -> list[dict[str, Any]]:
    """Return so many valid payloads."""
    return [{"number": number} for number in range(count)]


def actions(emitted: Emitted) -> list[tuple[int, str]]:
    """Return what became of which item."""
    return [(index, frame["action"]) for index, frame in emitted]


def test_the_callback_is_called_once_with_the_whole_batch(store: Store) -> None:
    """Fusing is its business, the grant is its bound."""
    calls: list[tuple[list[int], Grant]] = []

    def run(payloads: Sequence[NumberPayload], grant: Grant, _store: Store) -> Iterator[Outcome]:
        calls.append(([payload.number for payload in payloads], grant))
        yield from (Done() for _ in payloads)

    _, emitted = run_batch(store, a_kind(run), numbers(3))

    assert calls == [([0, 1, 2], GRANT)]
    assert actions(emitted) == [(0, "done"), (1, "done"), (2, "done")]


def test_an_outcome_is_emitted_before_the_next_is_computed(store: Store) -> None:
    """A child that dies later has not lost what was published."""
    order: list[str] = []

    def run(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        for payload in payloads:
            order.append(f"run {payload.number}")
            yield Done()

    request = BatchRequest(
        batch_id="1", kind=KIND, payloads=({"number": 0}, {"number": 1}), places=(None, None), grant=GRANT
    )
    BatchRunner({KIND: a_kind(run)}, store).run(request, lambda index, _: order.append(f"emit {index}"))

    assert order == ["run 0", "emit 0", "run 1", "emit 1"]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"number": "many"}, "number: Input should be a valid integer"),
        ({"numbr": 1}, "numbr: Extra inputs are not permitted"),
    ],
)
def test_invalid_arguments_fail_alone(store: Store, payload: dict[str, Any], told: str) -> None:
    """The others of the batch run, under their own indices."""
    _, emitted = run_batch(store, a_kind(yielding(Done(), Done())), [{}, payload, {}])

    assert sorted(actions(emitted)) == [(0, "done"), (1, "failed"), (2, "done")]
    failure = dict(emitted)[1]["failure"]
    assert failure["reason"] == "invalid_arguments"
    assert told in failure["cause"]


def test_a_batch_of_invalid_arguments_calls_nothing(store: Store) -> None:
    """There is nothing to run."""
    report, emitted = run_batch(store, a_kind(yielding(RuntimeError("called"))), [{"number": None}])

    assert actions(emitted) == [(0, "failed")]
    assert report.recorded_items == 0


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (RuntimeError("a bug"), "failed"),
        (StoreError("the disk is full"), "transient"),
        (MissingArtefactError("gone"), "transient"),
        (MemoryError(), "suspect"),
        (cv2.error("OpenCV(5.0.0) alloc.cpp:73: error: (-4:Insufficient memory) Failed"), "suspect"),
        (cv2.error("OpenCV(5.0.0) matchers.cpp:1: error: (-215:Assertion failed) rows"), "failed"),
    ],
)
def test_an_error_costs_the_item_it_was_at(store: Store, error: Exception, action: str) -> None:
    """What was finished stays, what was not reached is not mentioned: it goes back untouched."""
    report, emitted = run_batch(store, a_kind(yielding(Done(recorded_items=2), error, Done())), numbers(3))

    assert actions(emitted) == [(0, "done"), (1, action)]
    assert report.recorded_items == 2


def test_memory_that_was_refused_is_told_with_what_the_batch_had(store: Store) -> None:
    """It is no failure of the item: it runs again, with more."""

    def run(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        # No heap memory: that would stay with the process of the other tests.
        with mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
            for offset in range(0, 16 << 20, mmap.PAGESIZE):
                taken[offset] = 1
        if payloads:
            raise MemoryError
        yield Done()

    _, [(_, outcome)] = run_batch(store, a_kind(run), numbers(1))

    assert outcome["ending"] == "allocation_failed"
    assert 15 << 20 <= outcome["peak_bytes"] < 48 << 20
    assert list(store.project("p").failures()) == []


def test_a_bug_is_a_recorded_failure_that_names_it(store: Store) -> None:
    """The project goes on without the item and says why."""
    run_batch(store, a_kind(yielding(RuntimeError("a bug"))), numbers(1))

    ((stage, item, failure),) = store.project("p").failures()
    assert (stage, item, failure.reason) == ("match", "0", Reason.INTERNAL_ERROR)
    assert "RuntimeError: a bug" in failure.cause


def test_an_error_after_the_last_outcome_costs_nothing(store: Store) -> None:
    """Every item has its outcome: there is nobody left to blame."""
    report, emitted = run_batch(store, a_kind(yielding(Done(), RuntimeError("a bug"))), numbers(1))

    assert actions(emitted) == [(0, "done")]
    assert report.recorded_items == 1


def test_an_outcome_too_many_is_ignored(store: Store) -> None:
    """There is no item that it could belong to."""
    _, emitted = run_batch(store, a_kind(yielding(Done(), Done())), numbers(1))

    assert actions(emitted) == [(0, "done")]


LARGE = Done(follow_ups=(a_job("next", payload={"text": "x" * keys.MAX_PAYLOAD_BYTES}),))
UNPUBLISHABLE = {
    "follow-up too large": LARGE,
    "failure no UTF-8": Failed(failure=replace(FAILURE, name="\udcff")),
    "progress no JSON": Done(progress=cast("dict[str, str]", {"phase": {1}})),
}


@pytest.mark.parametrize("outcome", UNPUBLISHABLE.values(), ids=UNPUBLISHABLE)
@pytest.mark.parametrize("count", [1, 3])
def test_an_outcome_that_cannot_be_published_is_the_fault_of_its_own_item(
    store: Store, outcome: Outcome, count: int
) -> None:
    """Not of the next one; and the last one would otherwise run, and be given back, for ever."""
    outcomes = [*(Done() for _ in range(count - 1)), outcome]
    _, emitted = run_batch(store, a_kind(yielding(*outcomes, Done())), numbers(count + 1))

    assert actions(emitted) == [*((index, "done") for index in range(count - 1)), (count - 1, "failed")]
    ((_, item, failure),) = store.project("p").failures()
    assert (item, failure.reason) == (str(count - 1), Reason.INTERNAL_ERROR)


def test_a_callback_that_ends_early_fails_the_item_it_left_out(store: Store) -> None:
    """Given back untouched it would run, and be left out, for ever."""
    _, emitted = run_batch(store, a_kind(yielding(Done())), numbers(3))

    assert actions(emitted) == [(0, "done"), (1, "failed")]
    assert "without an outcome" in emitted[1][1]["failure"]["cause"]


def test_a_failure_is_in_the_store_before_it_is_told(store: Store) -> None:
    """Settled as failed, but not recorded, the item would be planned again for ever."""
    seen: list[int] = []
    request = BatchRequest(
        batch_id="1",
        kind=KIND,
        payloads=({},),
        places=(Place(project="p", stage="match", item="a"),),
        grant=GRANT,
    )
    kind = a_kind(yielding(Failed(failure=FAILURE)))
    BatchRunner({KIND: kind}, store).run(request, lambda *_: seen.append(len(store.project("p").failures())))

    assert seen == [1]
    assert store.project("p").failures() == [("match", "a", FAILURE)]


def test_an_item_that_is_done_has_not_failed(store: Store) -> None:
    """Whatever a node has recorded that was killed before it could tell."""
    place = Place(project="p", stage="match", item="a")
    store.project("p").record_failure("match", "a", FAILURE)
    _, emitted = run_batch(store, a_kind(yielding(Done())), [{}], place)

    assert [outcome["action"] for _, outcome in emitted] == ["done"]
    assert store.project("p").failures() == []


@pytest.mark.parametrize("payload", [{"number": 1}, {"number": "many"}], ids=["valid", "invalid"])
def test_a_failure_that_cannot_be_recorded_is_transient(store: Store, payload: dict[str, Any]) -> None:
    """The store is away: the item comes back when it may be there again."""
    store.project("p").record_failure("match", "other", FAILURE)
    folder = store.project("p").path / "failures"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("no folder")

    _, emitted = run_batch(store, a_kind(yielding(Failed(failure=FAILURE))), [payload])

    assert actions(emitted) == [(0, "transient")]


def test_a_failure_of_a_job_without_a_project_is_only_told(store: Store) -> None:
    """A stock client's job has no store of failures."""
    request = BatchRequest(batch_id="1", kind=KIND, payloads=({},), places=(None,), grant=GRANT)
    emitted: Emitted = []
    kind = a_kind(yielding(Failed(failure=FAILURE)))
    BatchRunner({KIND: kind}, store).run(request, lambda *frame: emitted.append(frame))

    assert actions(emitted) == [(0, "failed")]


def test_recorded_items_are_summed_over_what_was_done(store: Store) -> None:
    """No-ops and failures do not count."""
    outcomes = (Done(recorded_items=3), Failed(failure=FAILURE), Done(recorded_items=0), Done())
    report, _ = run_batch(store, a_kind(yielding(*outcomes)), numbers(4))

    assert (report.recorded_items, report.worked_items) == (4, 2)


def test_a_kind_is_warmed_up_once_per_child(store: Store) -> None:
    """Libraries are loaded before the first batch is measured."""
    warmed: list[str] = []
    kind = a_kind(warm_up=lambda: warmed.append("up"))
    runner = BatchRunner({KIND: kind}, store)
    request = BatchRequest(batch_id="1", kind=KIND, payloads=({},), places=(None,), grant=GRANT)
    for _ in range(2):
        runner.run(request, lambda *_: None)

    assert warmed == ["up"]


def test_a_finished_item_tells_what_follows_and_what_continues() -> None:
    """The frame is what the settlement needs, as JSON."""
    outcome = Done(
        follow_ups=(a_job("b"),),
        continuation=a_job("c"),
        continue_at=7,
        progress={"phase": "model"},
        counts={"inliers": 3},
    )

    frame = outcome_frame(outcome)
    assert [push["item"] for push in frame["pushes"]] == ["b"]
    assert (frame["continuation"]["item"], frame["continue_at"]) == ("c", 7)
    assert frame["progress"] == {"phase": "model"}
    assert frame["counts"] == {"inliers": 3}


def test_a_plain_end_tells_no_more_than_that() -> None:
    """Most items have no continuation."""
    assert outcome_frame(Done()) == {"action": "done", "pushes": []}


@pytest.mark.parametrize(
    ("outcome", "frame"),
    [
        (Failed(failure=FAILURE), {"action": "failed", "failure": FAILURE.to_dict()}),
        (
            Needs(estimate=Estimate(io_slots=1)),
            {"action": "needs", "estimate": Estimate(io_slots=1).to_header()},
        ),
        (NotReady(cause="gone"), {"action": "not_ready", "cause": "gone"}),
    ],
)
def test_every_other_outcome_has_its_frame(outcome: Outcome, frame: dict[str, Any]) -> None:
    """Action and what belongs to it."""
    assert outcome_frame(outcome) == frame


# -- The store as a whole ---------------------------------------------------------------


def run_in(store: Store, kind: Kind, store_id: str, count: int = 2) -> Emitted:
    """Run a batch that is meant for the store of this identity; return what was emitted."""
    payloads = tuple(numbers(count))
    places = tuple(Place(project="p", stage="match", item=str(n)) for n in range(count))
    request = BatchRequest(
        batch_id="1", kind=kind.name, payloads=payloads, places=places, grant=GRANT, store_id=store_id
    )
    emitted: Emitted = []
    BatchRunner({kind.name: kind}, store).run(request, lambda index, frame: emitted.append((index, frame)))
    return emitted


def taking_away(store: Store, outcome: Outcome | Exception) -> Callback:
    """Return a callback in whose first item the store's share goes, and leaves an empty folder."""

    def run(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        store.root.rename(store.root.with_name("away"))
        store.root.mkdir()
        for _ in payloads:
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome

    return run


@pytest.mark.parametrize(
    "outcome",
    [
        Done(),
        NotReady(cause="there is nothing"),
        Failed(failure=FAILURE),
        ValueError("there is nothing"),
        StoreError("there is nothing"),
    ],
)
def test_whatever_a_job_meets_without_its_store_is_the_stores_fault(
    store: Store, outcome: Outcome | Exception
) -> None:
    """It has seen an empty folder: neither its results nor its failures are true."""
    ((index, frame),) = run_in(store, a_kind(taking_away(store, outcome)), store.identity())

    assert (index, frame["action"]) == (0, "store_away")
    assert "it has lost its store.json" in frame["fault"]["cause"]
    assert list(store.root.iterdir()) == []


def test_a_batch_for_another_store_is_not_begun(store: Store) -> None:
    """Nothing was claimed for the one that is mounted here now."""
    calls: list[int] = []

    def run(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        calls.append(len(payloads))
        yield Done()

    store.identity()
    emitted = run_in(store, a_kind(run), "another")

    assert (actions(emitted), calls) == ([(0, "store_away")], [])


def test_a_full_disk_is_the_stores_fault_and_tells_its_room(store: Store) -> None:
    """The disk has been full for this artefact, though a probe may fit."""
    error = StoreError("the disk is full")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    ((_, frame),) = run_in(store, a_kind(yielding(error)), store.identity())

    assert (frame["action"], frame["fault"]["cure"]) == ("store_away", "free space on its disk")
    assert frame["fault"]["total_bytes"] > 0


def test_a_file_that_cannot_be_read_in_a_store_that_is_well_is_its_items_trouble(store: Store) -> None:
    """Three attempts, then the rest goes on without it."""
    emitted = run_in(store, a_kind(yielding(StoreError("cannot use x"))), store.identity())

    assert emitted == [(0, {"action": "transient", "cause": "cannot use x"})]


def run_to_its_soft_limit(
    store: Store, window: int, outcome: Outcome | None = None
) -> tuple[BatchReport, Emitted]:
    """Run a batch of three whose callback gets the exception at its second item."""
    second = (SoftTimeLimitExceeded(60.0),) if outcome is None else (outcome, Done())
    kind = a_kind(yielding(Done(), *second), window=lambda _grant: window)
    return run_batch(store, kind, numbers(3))


def test_an_item_that_meets_its_soft_limit_fails_and_is_recorded(store: Store) -> None:
    """Those behind it were not begun; the child is replaced, for it was interrupted anywhere."""
    report, emitted = run_to_its_soft_limit(store, window=1)

    assert actions(emitted) == [(0, "done"), (1, "failed")]
    assert emitted[1][1]["failure"]["reason"] == "time_limit"
    assert [failure.reason for _, _, failure in store.project("p").failures()] == [Reason.TIME_LIMIT]
    assert report.retire


def test_of_several_at_work_each_is_a_suspect(store: Store) -> None:
    """Which of them takes so long is not known: each is tried alone."""
    _, emitted = run_to_its_soft_limit(store, window=2)

    assert actions(emitted) == [(0, "done"), (1, "suspect"), (2, "suspect")]
    assert {frame["ending"] for _, frame in emitted[1:]} == {Ending.TIME_LIMIT}


def test_a_child_that_was_not_interrupted_and_has_started_nothing_stays(store: Store) -> None:
    """A new one would have to load its kinds again."""
    report, _ = run_to_its_soft_limit(store, window=1, outcome=Done())

    assert not report.retire


def test_a_batch_that_leaves_a_process_behind_retires_its_child(store: Store) -> None:
    """With it ends what it has started."""
    sleepers = []

    def run(payloads: Sequence[NumberPayload], _grant: Grant, _store: Store) -> Iterator[Outcome]:
        sleepers.append(subprocess.Popen(["sleep", "97"]))  # noqa: S607 - whatever sleep there is
        yield from (Done() for _ in payloads)

    report, emitted = run_batch(store, a_kind(run), numbers(1))
    sleepers[0].kill()
    sleepers[0].wait()

    assert report.retire
    assert actions(emitted) == [(0, "done")]


def test_a_kinds_first_batch_tells_when_it_has_loaded_what_it_needs(store: Store) -> None:
    """The time of its first item begins then."""
    told: list[str] = []
    kind = a_kind(warm_up=lambda: told.append("loaded"))
    runner = BatchRunner({kind.name: kind}, store)
    request = BatchRequest(batch_id="1", kind=kind.name, payloads=({},), places=(None,), grant=GRANT)
    for _ in range(2):
        runner.run(request, lambda _index, _outcome: told.append("done"), lambda: told.append("warm"))

    assert told == ["loaded", "warm", "done", "done"]
