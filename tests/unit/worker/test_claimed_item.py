"""A claimed message is read with its history and its place; what comes from outside is not trusted."""

import json
from typing import Any

import pytest

from governor.model import Estimate
from tests.unit.worker.builders import a_claimed, a_kind, an_item
from worker.claim import Claimed
from worker.claimed_item import LeaseChannel, read_item, unread_item
from worker.frames import Place

CHANNEL = LeaseChannel(lambda _tag: None)


def with_headers(**changes: Any) -> Claimed:
    """Build a message whose headers were tampered with."""
    fields = json.loads(a_claimed().payload)
    fields["headers"] |= changes
    return Claimed(tag="1", payload=json.dumps(fields).encode())


def test_history_and_place_are_read() -> None:
    """What the queue remembers, and where the item stands."""
    item = read_item(a_claimed("left", attempts=1, lost=3), CHANNEL)

    assert (item.attempts, item.lost) == (1, 3)
    assert item.place == Place(project="p", stage="match", item="left")
    assert (item.name, item.task) == ("left", "noop")


def test_an_item_knows_its_estimate_and_how_its_last_attempt_ended() -> None:
    """What a node has moved it to goes before what its sender wrote."""
    sent, moved = Estimate(memory_fixed_bytes=1), Estimate(memory_fixed_bytes=2)
    end = {"ending": "out_of_memory", "node": "pc1", "reserved_bytes": 1, "peak_bytes": None}
    item = read_item(a_claimed(estimate=sent, moved=moved, last_end=end), CHANNEL)

    assert item.last_end is not None
    assert item.last_end.to_dict() == end
    assert item.estimate(a_kind()) == moved
    assert read_item(a_claimed(estimate=sent), CHANNEL).estimate(a_kind()) == sent
    assert read_item(a_claimed(), CHANNEL).estimate(a_kind()) == a_kind().estimate


@pytest.mark.parametrize("project", [None, 5, "", "../other", "A", "a/b", "a" * 65])
def test_what_cannot_be_a_project_is_none(project: object) -> None:
    """The name becomes a folder; an error here would end the node that claimed it."""
    item = read_item(with_headers(project=project), CHANNEL)

    assert item.place is None
    assert item.name == item.job_id


def test_the_time_of_arrival_is_taken_out_of_the_message() -> None:
    """It is ours to wait, in Redis; Celery would wait in the worker."""
    item = read_item(with_headers(eta="2031-01-01T00:00:00+00:00"), CHANNEL)

    assert item.eta == "2031-01-01T00:00:00+00:00"
    assert "eta" not in item.message.headers


@pytest.mark.parametrize(
    ("sent", "shown"), [("x" * 256, "x" * 256), ("x" * 257, "x" * 255 + "…"), (None, "")]
)
def test_monitors_are_shown_the_beginning_of_the_arguments(sent: str | None, shown: str) -> None:
    """A monitor keeps thousands of jobs in memory, and a stock client may describe its own at length."""
    headers = read_item(with_headers(argsrepr=sent, kwargsrepr=sent), CHANNEL).message.headers

    assert (headers["argsrepr"], headers["kwargsrepr"]) == (shown, shown)


@pytest.mark.parametrize("extra", [0, 1])
def test_monitors_are_told_the_beginning_of_a_cause(extra: int) -> None:
    """The whole of it is in the report of the failed job."""
    told: list[str] = []
    item = an_item("a")
    item.request.send_event = lambda _name, exception, **_: told.append(exception)
    item.announce_return("x" * (1000 + extra))

    assert told == ["x" * 1000 if not extra else "x" * 999 + "…"]


def test_what_celery_refuses_is_told_by_its_tag() -> None:
    """A rejected message is settled under the lease."""
    refused: list[str] = []
    item = read_item(a_claimed("a"), LeaseChannel(refused.append))
    item.message.reject()

    assert refused == [item.tag]


def test_an_acknowledged_request_that_was_not_settled_is_cancelled() -> None:
    """Celery acknowledges what was revoked or has expired."""
    item = an_item()
    before = item.is_cancelled
    item.request.acknowledged = True

    assert (before, item.is_cancelled) == (False, True)


def test_an_item_knows_its_arguments_without_celery() -> None:
    """They are there before a request is, whatever becomes of the message."""
    item = read_item(a_claimed(payload={"number": 7}), CHANNEL)

    assert (item.arguments, item.payload, item.request) == ([], {"number": 7}, None)
    assert item.message.decode() == item.message.payload == [[], {"number": 7}, item.message.payload[2]]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"headers": {}}', b'{"headers": {}, "properties": {}}']
)
def test_what_is_no_task_message_is_a_value_error(text: bytes) -> None:
    """One error for all that can come from outside."""
    with pytest.raises(ValueError):  # noqa: PT011 - the cause differs
        read_item(Claimed(tag="1", payload=text), CHANNEL)


@pytest.mark.parametrize(
    ("part", "name", "value", "told"),
    [
        ("headers", "id", [], "no id"),
        ("headers", "id", None, "no id"),
        ("headers", "id", ["x"], "id is list"),
        ("headers", "task", None, "no task"),
        ("headers", "task", ["x"], "task is list"),
        ("headers", "eta", 5, "eta is int"),
        ("headers", "shadow", ["x"], "shadow is list"),
        ("headers", "timelimit", "60", "timelimit is not"),
        ("properties", "delivery_info", "x", "delivery_info is str"),
        ("tiepoint", "attempts", "x", "attempts is not a count"),
        ("tiepoint", "attempts", True, "attempts is not a count"),
        ("tiepoint", "attempts", -1, "attempts is not a count"),
        ("tiepoint", "lost", 1.5, "lost is not a count"),
        ("tiepoint", "estimate", "x", "estimate is str"),
        ("tiepoint", "lost_on", 5, "lost_on is int"),
        ("tiepoint", "last_end", [1], "last_end is list"),
        ("tiepoint", "last_end", {"ending": "killed"}, "last end has other fields"),
    ],
)
def test_a_part_of_the_wrong_type_is_a_value_error(part: str, name: str, value: object, told: str) -> None:
    """It would otherwise fail where nobody expects it, in Celery or at the end of a batch."""
    fields = json.loads(a_claimed().payload)
    fields[part][name] = value

    with pytest.raises(ValueError, match=told):
        read_item(Claimed(tag="1", payload=json.dumps(fields).encode()), CHANNEL)


@pytest.mark.parametrize("history", [5, None, "x", []])
def test_a_history_that_is_no_object_is_a_value_error(history: object) -> None:
    """Only the scripts write it, but anybody can."""
    fields = json.loads(a_claimed().payload) | {"tiepoint": history}

    with pytest.raises(ValueError, match="history"):
        read_item(Claimed(tag="1", payload=json.dumps(fields).encode()), CHANNEL)


def test_of_a_message_with_a_bad_body_the_names_are_told() -> None:
    """Its project must learn that the item has failed."""
    fields = json.loads(a_claimed("left").payload) | {"body": "hello"}
    item = unread_item(Claimed(tag="7", payload=json.dumps(fields).encode()))

    assert (item.tag, item.name, item.job_id) == ("7", "left", fields["headers"]["id"])
    assert item.place == Place(project="p", stage="match", item="left")


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[" * 20_000, b'{"headers": 5}'], ids=lambda text: str(text[:9])
)
def test_of_what_is_no_message_the_tag_is_told(text: bytes) -> None:
    """That is enough to settle it."""
    item = unread_item(Claimed(tag="7", payload=text))

    assert (item.tag, item.name, item.task, item.place) == ("7", "", "", None)
