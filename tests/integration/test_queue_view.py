"""What a node sees of its queues, and that its claims stay apart."""

import select
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from governor.model import Estimate
from tests.integration.noop_kinds import KINDS
from tests.integration.scripted_node import LIST, message, now_ms, number_of, put
from worker import keys
from worker.claim import BEST_EFFORT, Head, LeaseLostError, Wish
from worker.connections import TrackedClient
from worker.contracts import NOTHING_SAID
from worker.lease import Lease
from worker.queue_view import QueueView, Turn
from worker.settle import Settler

NOOP = KINDS[:1]
MUCH = 2**60


@pytest.fixture
def tracked(redis_url: str) -> Iterator[TrackedClient]:
    """Return a tracked client, closed at the end."""
    client = TrackedClient(redis_url)
    yield client
    client.close()


@pytest.fixture
def lease(redis_url: str, server: "redis.Redis") -> Iterator[Lease]:
    """Return a lease that is held, released at the end."""
    lease = Lease(redis_url, "one", 60.0, lambda: {"name": "one"})
    lease.ensure(server)
    yield lease
    lease.release(server)


@pytest.fixture
def settler(lease: Lease) -> Settler:
    """Return an empty outbox."""
    return Settler(lease, on_added=lambda: None)


@pytest.fixture
def view(tracked: TrackedClient, lease: Lease, settler: Settler) -> QueueView:
    """Return a view of the no-op kind that has looked at nothing yet."""
    view = QueueView(tracked, lease, settler)
    view.watch(NOOP)
    return view


def looked(view: QueueView, most_bytes: int = 0) -> list[Head]:
    """Look, and return what waits."""
    view.look(lambda: most_bytes)
    return view.heads()


def claim(view: QueueView, *heads: Head, batch: int = 1) -> Turn:
    """Claim from each of these heads in one turn."""
    return view.turn([Wish(head=head, batch=batch) for head in heads], lambda: 0)


def heard(view: QueueView, tracked: TrackedClient) -> bool | None:
    """Return whether what Redis tells next concerns a queue; None where it tells nothing."""
    return view.forget_what_has_changed() if select.select([tracked.fileno()], [], [], 60)[0] else None


def told_of_a_change(view: QueueView, tracked: TrackedClient) -> bool:
    """Have the view hear what Redis tells until it concerns a queue.

    Redis tells of the lease too, which a claim has read and a thread renews.
    """
    while not view.needs_look:
        if not select.select([tracked.fileno()], [], [], 5)[0]:
            return False
        view.forget_what_has_changed()
    return True


def test_heads_are_seen_with_their_list_priority_and_count(server: "redis.Redis", view: QueueView) -> None:
    """A message at kombu's default priority that asked for nothing is best effort."""
    put(server, message(0), message(1))
    put(server, message(2, message_class="protected"), source=keys.queue_list(LIST, 3))

    assert sorted((head.source, head.priority, head.count) for head in looked(view)) == [
        (LIST, BEST_EFFORT, 2),
        (keys.queue_list(LIST, 3), 3, 1),
    ]


def test_a_protected_message_in_the_first_list_keeps_its_priority(
    server: "redis.Redis", view: QueueView
) -> None:
    """The class header tells what the priority 0 means."""
    put(server, message(0, message_class="protected"))

    assert [head.priority for head in looked(view)] == [0]


def test_a_head_brings_its_contract(server: "redis.Redis", view: QueueView) -> None:
    """A capture that lies ahead of the server's clock is now, and so is one that is not told."""
    times: dict[str, Any] = {"period_ms": 500, "deadline_ms": 750, "supersede_key": "camera1"}
    put(server, message(0, captured_at_ms=1_800, **times))
    put(server, message(1, captured_at_ms=10**14, **times), source=keys.queue_list(LIST, 3))
    put(server, message(2, **times), source=keys.queue_list(LIST, 6))
    before_ms = now_ms(server)
    heads = {head.source: head for head in looked(view)}
    told = heads.pop(LIST)

    assert (told.due_ms, told.contract.contract.period_ns) == (2_550, 500_000_000)
    assert len(heads) == 2
    for head in heads.values():
        assert before_ms + 750 <= head.due_ms <= now_ms(server) + 750
        assert head.contract.contract.supersede_key == "camera1"


@pytest.mark.parametrize(
    "headers",
    [
        {"deadline_ms": "soon"},
        {"period_ms": -1},
        {"captured_at_ms": "x"},
        {"deadline_ms": float("inf")},
        {"deadline_ms": 10**400},
        {"max_age_ms": 1, "captured_at_ms": "nan"},
        {"max_age_ms": 1, "captured_at_ms": float("-inf")},
    ],
)
def test_a_contract_that_makes_no_sense_says_nothing(
    server: "redis.Redis", view: QueueView, headers: dict[str, Any]
) -> None:
    """It is claimed as any other, and refused then."""
    put(server, message(0, **headers))
    (head,) = looked(view)

    assert head.due_ms == NOTHING_SAID.contract.absolute_deadline_ns(0) // 1_000_000


def test_a_view_of_no_queue_asks_nothing(tracked: TrackedClient, lease: Lease, settler: Settler) -> None:
    """All queues may be cancelled; a command without keys is an error of Redis."""
    view = QueueView(tracked, lease, settler)
    view.watch([])

    assert looked(view) == []


def test_a_head_set_aside_is_seen_within_its_bound_and_claimed(
    server: "redis.Redis", view: QueueView
) -> None:
    """What was charged finds it again."""
    put(server, message(0, estimate=Estimate(memory_fixed_bytes=2**50).to_header()))
    (head,) = looked(view)
    view.set_aside(head, 2**50, only_if_it_blocks=False)

    assert looked(view, 2**50 - 1) == []
    (large,) = looked(view, 2**50)
    assert (large.is_large, large.charged_bytes, large.estimate(NOOP[0])) == (
        True,
        2**50,
        head.estimate(NOOP[0]),
    )
    assert [len(claimed) for claimed in claim(view, large).claimed] == [1]


def test_a_large_set_that_is_not_empty_is_looked_at_each_time(server: "redis.Redis", view: QueueView) -> None:
    """What of it fits changes with every reservation, which Redis does not know."""
    put(server, message(0))
    (head,) = looked(view)
    view.set_aside(head, 7, only_if_it_blocks=False)
    looked(view, 6)
    needs_look_while_filled = view.needs_look
    (large,) = looked(view, 7)
    claim(view, large)

    assert needs_look_while_filled
    assert not view.needs_look


def test_a_look_arms_the_wake_up(server: "redis.Redis", tracked: TrackedClient, view: QueueView) -> None:
    """A message that arrives after the look makes the subscriber readable."""
    view.look(lambda: MUCH)
    needed_look_before = view.needs_look
    put(server, message(0))

    assert told_of_a_change(view, tracked)
    assert (needed_look_before, view.needs_look) == (False, True)
    assert [head.count for head in looked(view)] == [1]


def test_a_claim_arms_the_wake_up_again(
    server: "redis.Redis", tracked: TrackedClient, view: QueueView
) -> None:
    """A node's own claim disarms the list, and Redis does not tell a node of what it did itself."""
    put(server, message(0))
    (head,) = looked(view)
    claim(view, head)
    put(server, message(1))

    assert told_of_a_change(view, tracked)
    assert [head.count for head in looked(view)] == [1]


def test_a_change_of_no_queue_is_told_apart(
    server: "redis.Redis", tracked: TrackedClient, view: QueueView
) -> None:
    """A claim has read the leases, so Redis tells of anybody's next renewal; that is no reason to look."""
    put(server, message(0))
    (head,) = looked(view)
    claim(view, head)
    server.zadd(keys.LEASES, {"another|1": 1})
    told_of_leases = heard(view, tracked)
    put(server, message(1))

    assert (told_of_leases, heard(view, tracked)) == (False, True)


def test_a_claim_brings_the_next_head_along(server: "redis.Redis", view: QueueView) -> None:
    """No look is needed before the next claim."""
    put(server, message(0), message(1), message(2))
    (head,) = looked(view)

    turn = claim(view, head, head)

    assert [[number_of(one.payload) for one in claimed] for claimed in turn.claimed] == [[0], [1]]
    assert not view.needs_look
    assert [head.count for head in view.heads()] == [1]


def test_a_settlement_goes_along_and_what_it_pushes_is_looked_at(
    server: "redis.Redis", view: QueueView, settler: Settler
) -> None:
    """Redis does not tell a node of its own pushes: the script does."""
    put(server, message(0), message(1))
    (head,) = looked(view)
    ((held,), _) = claim(view, head, head).claimed
    settler.add({"tag": held.tag, "action": "requeue", "attempts": 0})
    view.turn([], lambda: 0)

    assert (len(settler), settler.settled) == (0, 1)
    assert view.needs_look
    assert [head.count for head in looked(view)] == [1]


def test_a_flushed_database_is_looked_at_anew(
    server: "redis.Redis", tracked: TrackedClient, view: QueueView
) -> None:
    """Redis then names no keys."""
    put(server, message(0))
    view.look(lambda: MUCH)
    server.flushdb()

    assert told_of_a_change(view, tracked)
    assert looked(view) == []


def test_a_server_that_knows_no_scripts_is_told_them(
    server: "redis.Redis", view: QueueView, settler: Settler
) -> None:
    """After a restart the first turn does nothing but load them all."""
    put(server, message(0))
    (head,) = looked(view)
    settler.add({"tag": "0:0001:noop", "action": "done"})
    server.script_flush()
    first = claim(view, head)

    assert (first.claimed, first.error, len(settler)) == ([[]], None, 1)
    assert [len(claimed) for claimed in claim(view, head).claimed] == [1]
    assert len(settler) == 0


def test_a_claim_without_a_lease_is_an_error(server: "redis.Redis", view: QueueView) -> None:
    """The node must take its lease anew first."""
    put(server, message(0))
    (head,) = looked(view)
    server.delete(keys.LEASES)

    turn = claim(view, head)

    assert turn.claimed == [[]]
    assert isinstance(turn.error, LeaseLostError)
    assert server.llen(LIST) == 1


def test_what_one_claim_has_brought_is_kept_where_another_fails(
    server: "redis.Redis", view: QueueView
) -> None:
    """A message that is ours must be run, whatever else the turn has met."""
    put(server, message(0))
    (head,) = looked(view)
    server.set(keys.queue_list(LIST, 3), "no list")

    turn = claim(view, head, replace(head, source=keys.queue_list(LIST, 3)))

    assert [len(claimed) for claimed in turn.claimed] == [1, 0]
    assert isinstance(turn.error, redis.ResponseError)


def test_claims_before_and_after_a_reconnection_have_different_tags(
    server: "redis.Redis", redis_url: str, lease: Lease, settler: Settler
) -> None:
    """The lease outlives a connection: a tag used twice would overwrite a message that is held."""
    put(server, message(0), message(1))
    claimed = []
    for _ in range(2):
        tracked = TrackedClient(redis_url)
        view = QueueView(tracked, lease, settler)
        view.watch(NOOP)
        (head,) = looked(view)
        claimed += claim(view, head).claimed[0]
        tracked.close()

    assert len({message.tag for message in claimed}) == 2
    assert server.hlen(lease.inflight_key) == 2
