"""The outbox of a node loses nothing: an entry leaves it when Redis has confirmed it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import redis

from tasks.errors import Failure, Reason
from tests.unit.worker.builders import an_item
from worker.lease import Lease
from worker.settle import Settler, failed_entry, settlement

Reply = list[int] | Exception


class FakeRedis:
    """Answers each call of the script with the next reply; remembers the entries it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self._replies: Iterator[Reply] = iter(replies)
        self.sent: list[list[dict[str, Any]]] = []

    def evalsha(self, _digest: str, _numkeys: int, *arguments: Any) -> list[int]:
        """Take a group of entries."""
        self.sent.append(json.loads(arguments[3]))
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def lease() -> Lease:
    """Return a lease that was never taken: nothing connects."""
    return Lease("redis://nowhere", "one", 10.0, dict)


def _nothing() -> None:
    """Wake nobody."""


def flush(settler: Settler, server: FakeRedis) -> None:
    """Flush to a fake server."""
    settler.flush(cast("redis.Redis", server))


def filled(lease: Lease, count: int) -> Settler:
    """Return an outbox with so many entries."""
    settler = Settler(lease, on_added=lambda: None)
    for number in range(count):
        settler.add({"tag": str(number), "action": "done"})
    return settler


def test_entries_are_sent_in_order_and_counted(lease: Lease) -> None:
    """Some were settled, some came too late."""
    settler, server = filled(lease, 3), FakeRedis([2, 1])
    flush(settler, server)

    assert [entry["tag"] for entry in server.sent[0]] == ["0", "1", "2"]
    assert (len(settler), settler.settled, settler.refused) == (0, 2, 1)


def test_what_was_not_confirmed_is_kept_and_sent_again(lease: Lease) -> None:
    """An outage in the middle of a settlement loses nothing."""
    settler, server = filled(lease, 2), FakeRedis(redis.ConnectionError("gone"), [2, 0])
    with pytest.raises(redis.ConnectionError):
        flush(settler, server)

    assert len(settler) == 2
    flush(settler, server)
    assert server.sent[0] == server.sent[1]
    assert len(settler) == 0


@pytest.mark.parametrize(("count", "calls"), [(0, 0), (256, 1), (257, 2)])
def test_a_call_settles_at_most_256_entries(lease: Lease, count: int, calls: int) -> None:
    """A script must not hold up Redis for long."""
    settler, server = filled(lease, count), FakeRedis(*[[0, 0]] * calls)
    flush(settler, server)

    assert [len(group) for group in server.sent] == [256, 1][:calls]


def test_only_the_group_in_doubt_is_sent_again(lease: Lease) -> None:
    """What came before was confirmed."""
    settler = filled(lease, 300)
    with pytest.raises(redis.TimeoutError):
        flush(settler, FakeRedis([256, 0], redis.TimeoutError("late")))

    assert len(settler) == 44
    assert settler.settled == 256


@pytest.mark.parametrize(("action", "is_woken"), [("park", True), ("done", False)])
def test_parking_has_the_lease_renewed_soon(lease: Lease, action: str, is_woken: bool) -> None:  # noqa: FBT001
    """The parked message may be due before the next renewal."""
    settler = Settler(lease, on_added=lambda: None)
    settler.add({"tag": "0", "action": action})
    flush(settler, FakeRedis([1, 0]))

    assert lease._wake.is_set() == is_woken


def test_a_settlement_names_the_place_in_the_project() -> None:
    """That is what the once-token hangs on."""
    item = an_item("left-right")

    place = {"project": "p", "stage": "match", "item": "left-right"}
    assert settlement(item, "done") == {"tag": item.tag, "action": "done", **place}


def test_a_failed_job_is_reported_with_its_history() -> None:
    """Who looks at the list of dead jobs finds the job again."""
    item = an_item("a", attempts=2)
    failure = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")

    report = json.loads(failed_entry(item, "noop", failure)["report"])
    assert (report["kind"], report["job_id"], report["attempts"]) == ("noop", item.job_id, 2)
    assert (report["project"], report["stage"], report["item"]) == ("p", "match", "a")
    assert {name: report[name] for name in failure.to_dict()} == failure.to_dict()


@pytest.mark.parametrize(
    ("changes", "reason", "keeps_message"),
    [
        ({"place": None}, Reason.UNREADABLE, True),
        ({}, Reason.UNREADABLE, False),
        ({"place": None, "job_id": ""}, Reason.UNREADABLE, False),
        ({"place": None}, Reason.CANCELLED, False),
    ],
    ids=["bare", "of a project", "unreadable", "revoked"],
)
def test_the_message_is_kept_of_what_can_be_put_back(
    changes: dict[str, Any],
    reason: Reason,
    keeps_message: bool,  # noqa: FBT001 - a table
) -> None:
    """A project plans its items anew; Celery refuses the id of what was revoked."""
    item = replace(an_item("a"), **changes)
    failure = Failure(name="a", reason=reason, cause="torn", cure="copy it again")

    assert failed_entry(item, "noop", failure)["keeps_message"] is keeps_message


def test_whatever_is_added_wakes_the_loop(lease: Lease) -> None:
    """Or it would wait for the next event of another kind."""
    rung: list[str] = []
    Settler(lease, on_added=lambda: rung.append("ring")).add({"tag": "0", "action": "done"})

    assert rung == ["ring"]


def test_the_next_command_settles_what_waits_and_confirms_nothing_yet(lease: Lease) -> None:
    """It goes along with a claim; only the answer takes the entries out of the outbox."""
    settler = filled(lease, 3)
    entries, command = settler.next_command() or (0, ())

    assert (entries, len(settler)) == (3, 3)
    assert [entry["tag"] for entry in json.loads(cast("str", command[6]))] == ["0", "1", "2"]
    assert settler.on_reply([2, 1, b"noop", b"other"], entries) == {"noop", "other"}
    assert (len(settler), settler.settled, settler.refused) == (0, 2, 1)


def test_an_empty_outbox_has_no_command(lease: Lease) -> None:
    """A claim then goes by itself."""
    assert filled(lease, 0).next_command() is None


def test_what_redis_refuses_in_a_turn_is_kept(lease: Lease) -> None:
    """The next turn or flush sends it again."""
    settler = filled(lease, 2)

    assert settler.on_reply(redis.ResponseError("OOM"), 2) == set()
    assert len(settler) == 2
