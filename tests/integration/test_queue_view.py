"""What a node sees of its queues, and that its claims stay apart."""

import select
from collections.abc import Iterator

import pytest
import redis

from governor.model import Estimate
from tests.integration.noop_kinds import KINDS
from tests.integration.scripted_node import LIST, message, put
from worker import keys
from worker.claim import BEST_EFFORT, LeaseLostError, QueueView, set_aside
from worker.connections import TrackedClient
from worker.lease import Lease

NOOP = KINDS[:1]


@pytest.fixture
def redis_url(broker_url: str) -> str:
    """Return the server's URL in redis-py's spelling."""
    return broker_url.replace("redis+socket://", "unix://", 1)


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


def test_heads_are_seen_with_their_list_priority_and_count(
    server: "redis.Redis", tracked: TrackedClient, lease: Lease
) -> None:
    """A message at kombu's default priority that asked for nothing is best effort."""
    put(server, message(0), message(1))
    put(server, message(2, message_class="protected"), source=keys.queue_list(LIST, 3))

    heads = QueueView(tracked, lease).look(NOOP, 0)

    assert [(head.source, head.priority, head.count) for head in heads] == [
        (LIST, BEST_EFFORT, 2),
        (keys.queue_list(LIST, 3), 3, 1),
    ]


def test_a_protected_message_in_the_first_list_keeps_its_priority(
    server: "redis.Redis", tracked: TrackedClient, lease: Lease
) -> None:
    """The class header tells what the priority 0 means."""
    put(server, message(0, message_class="protected"))

    (head,) = QueueView(tracked, lease).look(NOOP, 0)

    assert head.priority == 0


def test_a_head_set_aside_is_seen_within_its_bound_and_claimed(
    server: "redis.Redis", tracked: TrackedClient, lease: Lease
) -> None:
    """What was charged finds it again."""
    view = QueueView(tracked, lease)
    put(server, message(0, estimate=Estimate(memory_fixed_bytes=2**50).to_header()))
    (head,) = view.look(NOOP, 0)
    set_aside(server, head, 2**50, only_if_it_blocks=False)

    (large,) = view.look(NOOP, 2**50)

    assert view.look(NOOP, 2**50 - 1) == []
    assert (large.is_large, large.charged_bytes, large.sent_estimate()) == (
        True,
        2**50,
        head.sent_estimate(),
    )
    assert len(view.claim(large, 1)) == 1


def test_a_look_arms_the_wake_up(server: "redis.Redis", tracked: TrackedClient, lease: Lease) -> None:
    """A message that arrives after the look makes the subscriber readable."""
    view = QueueView(tracked, lease)
    view.look(NOOP, 0)
    put(server, message(0))

    assert select.select([tracked.fileno()], [], [], 5)[0]
    tracked.drain()
    assert [head.count for head in view.look(NOOP, 0)] == [1]


def test_a_server_that_knows_no_scripts_is_told_them(
    server: "redis.Redis", tracked: TrackedClient, lease: Lease
) -> None:
    """After a restart the first look loads them all."""
    put(server, message(0))
    server.script_flush()
    view = QueueView(tracked, lease)

    (head,) = view.look(NOOP, 0)

    assert len(view.claim(head, 1)) == 1


def test_a_claim_without_a_lease_is_an_error(
    server: "redis.Redis", tracked: TrackedClient, lease: Lease
) -> None:
    """The node must take its lease anew first."""
    view = QueueView(tracked, lease)
    put(server, message(0))
    (head,) = view.look(NOOP, 0)
    server.delete(keys.LEASES)

    with pytest.raises(LeaseLostError):
        view.claim(head, 1)


def test_claims_before_and_after_a_reconnection_have_different_tags(
    server: "redis.Redis", redis_url: str, lease: Lease
) -> None:
    """The lease outlives a connection: a tag used twice would overwrite a message that is held."""
    put(server, message(0), message(1))
    claimed = []
    for _ in range(2):
        tracked = TrackedClient(redis_url)
        view = QueueView(tracked, lease)
        (head,) = view.look(NOOP, 0)
        claimed += view.claim(head, 1)
        tracked.close()

    assert len({message.tag for message in claimed}) == 2
    assert server.hlen(lease.inflight_key) == 2
