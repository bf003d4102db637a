"""Messages are written as kombu and Celery write them, and read with all the caution outside text needs."""

import json

import pytest

from governor.model import Estimate
from tests.unit.worker.builders import KIND, SEPARATOR, a_job
from worker import keys
from worker.envelope import PayloadTooLargeError, read_message, to_message, to_push


def test_the_body_is_a_call_with_keyword_arguments_only() -> None:
    """Celery's protocol 2: positional arguments, keyword arguments, the embedded canvas."""
    message = json.loads(to_message(a_job(payload={"number": 7, "names": []})))

    args, kwargs, embedded = json.loads(message["body"])
    assert (args, kwargs) == ([], {"number": 7, "names": []})
    assert set(embedded) == {"callbacks", "errbacks", "chain", "chord"}


def test_the_headers_name_the_place_and_the_estimate() -> None:
    """What the node and the scripts read without touching the body."""
    estimate = Estimate(memory_fixed_bytes=5)
    message = json.loads(to_message(a_job("left-right", estimate=estimate), message_class="high"))

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
def test_a_push_names_the_list_of_its_priority(priority: int, name: str) -> None:
    """The script pushes to where kombu would have."""
    push = to_push(a_job("a"), priority=priority)

    assert push["list"] == name
    assert json.loads(push["payload"])["properties"]["priority"] == priority
    assert (push["project"], push["stage"], push["item"]) == ("p", "match", "a")


def test_what_is_written_is_read() -> None:
    """Writer and reader agree."""
    text = to_message(a_job())

    assert read_message(text.encode()) == json.loads(text)


@pytest.mark.parametrize("text", [b"", b"\xff", b"5", b"[]", b"{}", b'{"headers": []}', b'{"headers": null}'])
def test_what_is_no_message_is_a_value_error(text: bytes) -> None:
    """One error for all that can come from outside."""
    with pytest.raises(ValueError):  # noqa: PT011 - the cause differs
        read_message(text)
