"""A claimed message is read with its history and its place; what comes from outside is not trusted."""

import json
from typing import Any

import pytest

from tests.unit.worker.builders import a_claimed, an_item
from worker.claim import Claimed
from worker.claimed_item import LeaseChannel, read_item
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


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"headers": {}}', b'{"headers": {}, "properties": 5}'])
def test_what_is_no_task_message_is_an_error_that_reception_expects(text: bytes) -> None:
    """ValueError, KeyError or TypeError: it is dropped with a report."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_item(Claimed(tag="1", payload=text), CHANNEL)
