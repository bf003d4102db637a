"""Of what was claimed, what may run is handed on, and everything else is settled at once, with its reason."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from kombu.exceptions import OperationalError

from tasks.errors import Failure, Reason
from tasks.parameters import ProjectParameters
from tasks.store import Store
from tests.unit.worker.builders import KIND, FakeRequest, a_claimed
from worker.claim import Claimed
from worker.claimed_item import ClaimedItem
from worker.reception import MAX_LOST_NODES, Reception
from worker.settle import Settler
from worker.store_health import StoreHealth, StoreSenses

SERVER_NOW = datetime(2032, 5, 1, 12, 0, 0, tzinfo=UTC)
"""Not this machine's time: only the server's counts."""
FAILURE = Failure(name="", reason=Reason.NEEDS_BIGGER_NODE, cause="needs 9 GiB", cure="free memory")


class Scene:
    """A reception with a store, an outbox, and a Celery that does as it is told."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.store.create()
        self.store.project("p").create(ProjectParameters(), [])
        self.entries: list[dict[str, Any]] = []
        self.answer = "accept"
        self.error: Exception | None = None
        """What Celery raises over the next message."""
        self.behind: list[bytes] = []
        """What waits behind the claimed messages."""
        self.likely_ns = 0
        """What a job is likely to take."""
        self.reception = Reception(
            self.store,
            cast("Settler", self),
            self._celery,
            self._now_ms,
            next_messages=lambda _: self.behind,
        )
        self.reception.likely_ns = lambda _: self.likely_ns

    def add(self, entry: dict[str, Any]) -> None:
        """Keep what is settled."""
        self.entries.append(entry)

    def _celery(self, message: Any) -> list[Any]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.answer == "reject":
            message.channel.basic_reject(message.delivery_tag, requeue=False)
        request = FakeRequest(message.headers["id"], {})
        request.name = message.headers.get("shadow") or message.headers["task"]
        return [request] if self.answer == "accept" else []

    @staticmethod
    def _now_ms() -> int:
        return int(SERVER_NOW.timestamp() * 1000)

    def receive(self, *claimed: Claimed) -> list[ClaimedItem]:
        """Receive messages of the kind's list."""
        return self.reception.receive(list(claimed), KIND)

    @property
    def reason(self) -> str:
        """Return why the one settled message has failed."""
        (entry,) = self.entries
        return str(json.loads(entry["report"])["reason"])

    @property
    def failure(self) -> Failure:
        """Return the one failure that the project has recorded."""
        ((_, _, failure),) = self.store.project("p").failures()
        return failure


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a reception."""
    return Scene(tmp_path)


def with_fields(**changes: Any) -> Claimed:
    """Build a message with other fields."""
    fields = json.loads(a_claimed().payload) | changes
    return Claimed(tag="1", payload=json.dumps(fields).encode())


def with_headers(**changes: Any) -> Claimed:
    """Build a message with other headers."""
    return with_fields(headers=json.loads(a_claimed().payload)["headers"] | changes)


def test_what_celery_accepts_is_run(scene: Scene) -> None:
    """With its request, and nothing settled yet."""
    items = scene.receive(a_claimed("a"), a_claimed("b"))

    assert [item.name for item in items] == ["a", "b"]
    assert all(item.request is not None for item in items)
    assert scene.entries == []


def test_a_job_with_a_name_for_display_is_run(scene: Scene) -> None:
    """`shadow` changes how Flower shows a task, not what it is."""
    assert len(scene.receive(with_headers(shadow="my survey"))) == 1


def test_a_task_of_another_queue_is_refused(scene: Scene) -> None:
    """Its estimate was not what was reserved."""
    assert scene.receive(with_headers(task="matcher.run")) == []
    assert scene.reason == "unknown_task"


@pytest.mark.parametrize(
    ("answer", "task", "reason"),
    [
        ("reject", "no.such.task", "unknown_task"),
        ("reject", KIND, "invalid_arguments"),
        ("discard", KIND, "cancelled"),
        ("accept", "matcher.run", "unknown_task"),
    ],
)
def test_what_celery_does_not_want_is_settled_with_the_reason(
    scene: Scene, answer: str, task: str, reason: str
) -> None:
    """It rejects what it does not know or finds invalid, and drops what was revoked or has expired."""
    scene.answer = answer

    assert scene.receive(with_headers(task=task)) == []
    assert scene.reason == reason
    assert [(stage, item) for stage, item, _ in scene.store.project("p").failures()] == [("match", "a")]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"headers": {}}'])
def test_what_cannot_be_read_is_dropped_with_a_report(scene: Scene, text: bytes) -> None:
    """The others of the claim run."""
    items = scene.receive(Claimed(tag="7", payload=text), a_claimed("a"))

    assert [item.name for item in items] == ["a"]
    assert scene.reason == "undecodable_message"
    assert scene.entries[0]["tag"] == "7"


@pytest.mark.parametrize(("lost", "runs"), [(MAX_LOST_NODES - 1, True), (MAX_LOST_NODES, False)])
def test_a_job_that_ten_nodes_were_lost_with_is_given_up(scene: Scene, lost: int, runs: bool) -> None:  # noqa: FBT001
    """It may be what kills them."""
    items = scene.receive(a_claimed("a", lost=lost))

    assert bool(items) == runs
    assert [entry["action"] for entry in scene.entries] == ([] if runs else ["failed"])
    assert [json.loads(entry["report"])["ending"] for entry in scene.entries] == (
        [] if runs else ["lost_node"]
    )


def test_a_job_for_later_is_parked_in_redis(scene: Scene) -> None:
    """Until its own time by the server's clock, whatever this machine's shows; no attempt is counted."""
    items = scene.receive(with_headers(eta="2032-05-01T12:00:00.001+00:00"))

    assert items == []
    assert scene.entries == [
        {"tag": "1", "action": "park", "attempts": 0, "due_ms": int(SERVER_NOW.timestamp() * 1000) + 1}
    ]


@pytest.mark.parametrize("eta", ["2032-05-01T12:00:00+00:00", "2032-05-01T12:00:00", "soon", None])
def test_a_job_whose_time_has_come_or_cannot_be_read_is_run(scene: Scene, eta: str | None) -> None:
    """Now rather than never."""
    assert len(scene.receive(with_headers(eta=eta))) == 1


def test_a_refused_message_fails_under_its_own_name(scene: Scene) -> None:
    """No code of a job runs."""
    scene.reception.refuse(a_claimed("a"), KIND, FAILURE)

    ((_, _, failure),) = scene.store.project("p").failures()
    assert (failure.name, failure.cause) == ("a", "needs 9 GiB")
    assert scene.reason == "needs_bigger_node"


def test_a_store_that_is_away_does_not_end_the_node(scene: Scene) -> None:
    """The failure is logged and settled; the project learns of it by its plan."""
    scene.store.project("p").path.rename(scene.store.root / "away")
    (scene.store.root / "projects").rmdir()
    (scene.store.root / "projects").write_text("no folder")
    scene.answer = "reject"

    assert scene.receive(a_claimed("a")) == []
    assert scene.reason == "invalid_arguments"


def test_a_project_that_cannot_be_one_does_not_end_the_node(scene: Scene) -> None:
    """Headers come from outside."""
    scene.answer = "reject"

    assert scene.receive(with_headers(project="../../etc")) == []
    assert scene.reason == "invalid_arguments"


def test_positional_arguments_are_not_dropped_but_refused(scene: Scene) -> None:
    """Whoever sends them is told, instead of getting the defaults."""
    assert scene.receive(with_fields(body="[[1], {}, {}]")) == []
    assert scene.reason == "invalid_arguments"
    assert "positional arguments" in scene.failure.cause


def test_an_item_whose_body_cannot_be_read_fails_in_its_project(scene: Scene) -> None:
    """Otherwise the project would wait for it for ever."""
    scene.receive(with_fields(body="hello"))

    (entry,) = scene.entries
    assert (entry["project"], entry["stage"], entry["item"]) == ("p", "match", "a")
    assert scene.failure.reason is Reason.UNDECODABLE_MESSAGE


@pytest.mark.parametrize(
    "error", [AttributeError("x"), RecursionError(), ValueError("\udcff"), OSError("gone")]
)
def test_an_error_over_one_message_costs_that_message_only(scene: Scene, error: Exception) -> None:
    """It is settled, counted and logged; the node lives, and the next message runs."""
    scene.error = error
    items = scene.receive(a_claimed("a"), a_claimed("b"))

    assert [item.name for item in items] == ["b"]
    assert scene.reception.unexpected_errors == 1
    assert scene.reason == "undecodable_message"
    assert type(error).__name__ in scene.failure.cause


@pytest.mark.parametrize("error", [redis.ConnectionError(), OperationalError()])
def test_a_broker_that_is_away_is_no_fault_of_the_message(scene: Scene, error: Exception) -> None:
    """Celery reconnects, and what was claimed is given back."""
    scene.error = error

    with pytest.raises(type(error)):
        scene.receive(a_claimed("a"))
    assert scene.entries == []


def test_a_refused_message_that_cannot_be_read_is_settled(scene: Scene) -> None:
    """A bad head is refused without a look at the rest."""
    scene.reception.refuse(Claimed(tag="7", payload=b"hello"), KIND, FAILURE)

    assert scene.reason == "undecodable_message"
    assert scene.entries[0]["tag"] == "7"


def test_what_cannot_be_recorded_for_want_of_the_store_goes_back(tmp_path: Path) -> None:
    """A failure that no plan would see is none: the job would be planned, and fail, once more."""
    scene = Scene(tmp_path / "store")
    health = StoreHealth(
        scene.store.root, scene.store.identity(), lambda: None, StoreSenses(start=lambda _run: None)
    )
    scene.reception = Reception(scene.store, cast("Settler", scene), scene._celery, scene._now_ms, health)
    scene.store.root.rename(tmp_path / "away")
    scene.store.root.mkdir()
    scene.reception.refuse(a_claimed("a"), KIND, FAILURE)

    assert [(entry["item"], entry["action"], entry["attempts"]) for entry in scene.entries] == [
        ("a", "park", 0)
    ]
    assert (health.is_away, list(scene.store.root.iterdir())) == (True, [])


def test_a_failure_that_one_file_forbids_to_record_is_settled_all_the_same(tmp_path: Path) -> None:
    """The store is well; the job would come back for ever."""
    scene = Scene(tmp_path / "store")
    health = StoreHealth(scene.store.root, scene.store.identity(), lambda: None)
    scene.reception = Reception(scene.store, cast("Settler", scene), scene._celery, scene._now_ms, health)
    (scene.store.project("p").path / "failures").write_text("in the way")
    scene.reception.refuse(a_claimed("a"), KIND, FAILURE)

    assert (scene.reason, health.is_away) == (Reason.NEEDS_BIGGER_NODE, False)


NOW_MS = int(SERVER_NOW.timestamp() * 1000)


def bare(item: str, **headers: Any) -> Claimed:
    """Build a message of a job without a project, with these headers."""
    fields = json.loads(a_claimed(item).payload)
    for name in ("project", "stage", "item"):
        del fields["headers"][name]
    fields["headers"] |= headers
    return Claimed(tag=f"000000000001:{item}:{KIND}", payload=json.dumps(fields).encode())


@pytest.mark.parametrize(("age_ms", "is_run"), [(100, True), (101, False)])
def test_a_job_that_is_too_old_is_dropped(scene: Scene, age_ms: int, is_run: bool) -> None:  # noqa: FBT001 - a parameter
    """By the server's clock; nobody hears of a failure, and it is counted."""
    items = scene.receive(bare("a", max_age_ms=100, captured_at_ms=NOW_MS - age_ms))

    assert bool(items) is is_run
    assert scene.reception.stale == (not is_run)
    assert scene.entries == ([] if is_run else [{"tag": f"000000000001:a:{KIND}", "action": "drop"}])


@pytest.mark.parametrize(("takes_ns", "is_run"), [(40_000_000, True), (40_000_001, False)])
def test_a_job_that_will_be_too_old_is_dropped(scene: Scene, takes_ns: int, is_run: bool) -> None:  # noqa: FBT001
    """What it is likely to take counts where that is planned."""
    scene.likely_ns = takes_ns

    assert bool(scene.receive(bare("a", max_age_ms=100, captured_at_ms=NOW_MS - 60))) is is_run


def test_an_item_of_a_project_that_is_too_old_fails(scene: Scene) -> None:
    """The project goes on, and tells of it."""
    assert scene.receive(with_headers(max_age_ms=100, captured_at_ms=NOW_MS - 500)) == []
    assert scene.reason == "stale"
    assert "its result would be 500 ms old, and of no use after 100 ms" in scene.failure.cause


@pytest.mark.parametrize("header", [{"max_age_ms": 100}, {"captured_at_ms": 0}])
def test_a_job_without_age_or_capture_is_not_too_old(scene: Scene, header: dict[str, int]) -> None:
    """Nothing is guessed."""
    assert len(scene.receive(bare("a", **header))) == 1


def test_a_contract_that_makes_no_sense_fails_its_job(scene: Scene) -> None:
    """With the name of the header."""
    assert scene.receive(bare("a", period_ms="soon")) == []
    (entry,) = scene.entries
    assert "period_ms is 'soon'" in json.loads(entry["report"])["cause"]


def test_of_jobs_with_one_key_the_newest_is_run(scene: Scene) -> None:
    """Of those claimed together; another key is another stream."""
    items = scene.receive(
        bare("1", supersede_key="camera1"),
        bare("2", supersede_key="camera2"),
        bare("3", supersede_key="camera1"),
    )

    assert [item.tag.split(":")[1] for item in items] == ["2", "3"]
    assert [entry["action"] for entry in scene.entries] == ["drop"]
    assert scene.reception.superseded == 1


def test_a_newer_one_that_waits_supersedes_what_was_claimed(scene: Scene) -> None:
    """What cannot be read supersedes nothing."""
    scene.behind = [b'{"supersede_key": ', bare("9", supersede_key="camera1").payload]
    items = scene.receive(bare("1", supersede_key="camera1"), bare("2", supersede_key="camera2"), bare("3"))

    assert [item.tag.split(":")[1] for item in items] == ["2", "3"]


def test_jobs_of_a_project_supersede_nothing(scene: Scene) -> None:
    """Each of them is wanted, and counted."""
    items = scene.receive(*(with_headers(supersede_key="camera1", item=item) for item in ("a", "b")))

    assert len(items) == 2


def test_jobs_without_a_key_ask_for_nothing(scene: Scene) -> None:
    """It would be a round trip for every claim."""
    scene.reception._next_messages = lambda _: pytest.fail("it has asked")  # the test is that nobody does

    assert len(scene.receive(bare("1"), bare("2"))) == 2
