"""Messages are written as kombu and Celery write them, and read with all the caution outside text needs."""

import base64
import json
from typing import Any

import pytest

from governor.model import Estimate
from tests.unit.worker.builders import KIND, SEPARATOR, a_job
from worker import keys
from worker.contracts import SentContract, read_contract
from worker.envelope import (
    MAX_NESTED_LEVELS,
    PayloadTooLargeError,
    read_call,
    read_message,
    to_message,
    to_push,
)


def test_the_body_is_a_call_with_keyword_arguments_only() -> None:
    """Celery's protocol 2: positional arguments, keyword arguments, the embedded canvas."""
    message = json.loads(to_message(a_job(payload={"number": 7, "names": []})))

    args, kwargs, embedded = json.loads(message["body"])
    assert (args, kwargs) == ([], {"number": 7, "names": []})
    assert set(embedded) == {"callbacks", "errbacks", "chain", "chord"}


CLASS_OF = {0: "protected", 3: "high", 6: "best_effort"}


def a_contract(name: str, **headers: int) -> SentContract:
    """Return a contract of a class."""
    return read_contract({"class": name, **headers})


def test_a_message_tells_its_contract() -> None:
    """As any client would."""
    message = json.loads(to_message(a_job(), a_contract("protected", period_ms=500, captured_at_ms=7)))
    headers = message["headers"]

    assert (headers["class"], headers["period_ms"], headers["captured_at_ms"]) == ("protected", 500, 7)
    assert "deadline_ms" not in headers
    assert message["properties"]["priority"] == 0


def test_the_headers_name_the_place_and_the_estimate() -> None:
    """What the node and the scripts read without touching the body."""
    estimate = Estimate(memory_fixed_bytes=5)
    message = json.loads(to_message(a_job("left-right", estimate=estimate), a_contract("high")))

    names = ("task", "project", "stage", "item", "class", "estimate")
    assert [message["headers"][name] for name in names] == [
        KIND,
        "p",
        "match",
        "left-right",
        "high",
        estimate.to_header(),
    ]


def test_the_default_estimate_is_no_header() -> None:
    """Messages with the kind's default fuse into batches, whoever sent them."""
    assert "estimate" not in json.loads(to_message(a_job()))["headers"]


def test_every_message_has_its_own_id() -> None:
    """Celery revokes by id: two messages of one item are two jobs."""
    first, second = (json.loads(to_message(a_job())) for _ in range(2))

    assert first["headers"]["id"] == first["properties"]["correlation_id"]
    assert first["headers"]["id"] != second["headers"]["id"]


def test_a_message_may_be_as_large_as_the_queue_accepts_and_no_larger() -> None:
    """One byte too many is refused before it is sent."""
    room = keys.MAX_PAYLOAD_BYTES - len(to_message(a_job(payload={"text": "x" * 1000}))) + 1000

    assert len(to_message(a_job(payload={"text": "x" * room}))) == keys.MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLargeError, match="65537 bytes, 65536 are accepted"):
        to_message(a_job(payload={"text": "x" * (room + 1)}))


@pytest.mark.parametrize(
    ("priority", "name"), [(0, KIND), (3, f"{KIND}{SEPARATOR}3"), (6, f"{KIND}{SEPARATOR}6")]
)
def test_a_push_names_the_list_of_its_class(priority: int, name: str) -> None:
    """The script pushes to where kombu would have."""
    push = to_push(a_job("a"), a_contract(CLASS_OF[priority]))

    assert push["list"] == name
    assert json.loads(push["payload"])["properties"]["priority"] == priority
    assert (push["project"], push["stage"], push["item"]) == ("p", "match", "a")


def test_what_is_written_is_read() -> None:
    """Writer and reader agree."""
    text = to_message(a_job())

    assert read_message(text.encode()) == json.loads(text)


DEEP = "[" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"5",
        b"[]",
        b"{}",
        b'{"headers": [], "properties": {}}',
        b'{"headers": {}, "properties": null}',
        b'{"headers": {}}',
        b'{"headers": {"item": "\\ud800"}, "properties": {}}',
        b'{"headers": {"item": "\xed\xa0\x80"}, "properties": {}}',
        b'{"headers": %s' % DEEP.encode(),
    ],
    ids=lambda text: str(text[:40]),
)
def test_what_is_no_message_is_a_value_error(text: bytes) -> None:
    """One error for all that can come from outside."""
    with pytest.raises(ValueError):  # noqa: PT011 - the cause differs
        read_message(text)


def a_message(**changes: Any) -> dict[str, Any]:
    """Build a message that was read, with some fields replaced."""
    return {**json.loads(to_message(a_job(payload={"number": 7}))), **changes}


def with_arguments(value: Any) -> dict[str, Any]:
    """Build a message with this one keyword argument."""
    return a_message(body=json.dumps([[], {"number": value}, None]))


def nested(levels: int) -> Any:
    """Return so many lists in each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("encoding", [None, "", "utf-8", "base64"])
def test_a_call_is_read_however_its_body_is_packed(encoding: str | None) -> None:
    """As text, which we write, or in base64, which Celery writes."""
    body = json.dumps([[], {"number": 7}, {}])
    packed = base64.b64encode(body.encode()).decode() if encoding == "base64" else body

    assert read_call(a_message(body=packed, properties={"body_encoding": encoding})) == [
        [],
        {"number": 7},
        {},
    ]


def test_an_argument_stays_the_json_it_is() -> None:
    """It is sent to a child as JSON again; kombu would make a date of it."""
    date = {"__type__": "datetime", "__value__": "2001-01-01T00:00:00"}

    assert read_call(with_arguments(date))[1] == {"number": date}


def test_a_call_may_be_nested_so_deep_and_no_deeper() -> None:
    """It is encoded again for a child, where the stack is deeper than here."""
    own_levels = 2

    read_call(with_arguments(nested(MAX_NESTED_LEVELS - own_levels)))
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        read_call(with_arguments(nested(MAX_NESTED_LEVELS - own_levels + 1)))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"content-type": "application/x-python-serialize"}, "x-python-serialize"),
        ({"content-type": []}, "content type"),
        ({"headers": {"compression": "application/x-gzip"}}, "compressed"),
        ({"properties": {"body_encoding": "rot13"}}, "rot13"),
        ({"properties": {"body_encoding": []}}, "body encoding"),
        ({"properties": {"body_encoding": "base64"}, "body": "\u00e9"}, "ASCII"),
        ({"properties": {"body_encoding": "base64"}, "body": "/w=="}, "utf-8"),
        ({"body": None}, "not text"),
        ({"body": [[], {}, {}]}, "not text"),
        ({"body": "hello"}, "Expecting value"),
        ({"body": DEEP}, "nested too deep"),
        ({"body": '[[], {"\\ud800": 1}, {}]'}, "surrogate"),
        ({"body": "5"}, "not a call"),
        ({"body": "null"}, "not a call"),
        ({"body": "[[]]"}, "not a call"),
        ({"body": "[[], {}]"}, "not a call"),
        ({"body": "[[], {}, {}, {}]"}, "not a call"),
        ({"body": "[[], [1, 2], {}]"}, "not a call"),
        ({"body": "[{}, {}, {}]"}, "not a call"),
        ({"body": "[[], {}, [1]]"}, "not a call"),
        ({"body": "{}"}, "not a call"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_call_is_a_value_error(changes: dict[str, Any], told: str) -> None:
    """The cause is what its sender has to know."""
    with pytest.raises(ValueError, match=told):
        read_call(a_message(**changes))
