"""The scripts of the lease: what dead nodes held goes back, what live ones hold does not."""

import redis

from tests.integration.scripted_node import (
    LEASE_MS,
    LIST,
    ScriptedNode,
    leased_node,
    message,
    now_ms,
    numbers,
    put,
    spliced,
    waiting,
)
from worker import keys


def expiry_ms(server: "redis.Redis", node: ScriptedNode) -> int:
    """Return when a node's lease ends, in ms from now."""
    return int(server.zscore(keys.LEASES, node.incarnation) or 0) - now_ms(server)


def test_a_lease_is_taken_only_when_asked_for(server: "redis.Redis") -> None:
    """A renewal that comes too late must notice that the lease had ended."""
    node = ScriptedNode(server)

    assert node.renew()[0] == 0
    assert server.zcard(keys.LEASES) == 0
    node.renew(create=1)
    assert node.renew()[0] == 1
    assert LEASE_MS - 1000 < expiry_ms(server, node) <= LEASE_MS


def test_what_an_ended_lease_held_goes_back_with_a_lost_node_counted(server: "redis.Redis") -> None:
    """The messages are next in line again, oldest first, before what came later."""
    dead, other = leased_node(server, "dead"), leased_node(server, "other")
    put(server, *[message(number) for number in range(5)])
    dead.claim(2)
    dead.claim(1)
    dead.expire()

    assert other.renew()[1] == 3
    assert numbers(server) == [0, 1, 2, 3, 4]
    assert waiting(server)[:4] == [
        *[spliced(message(number), lost=1, lost_on="dead") for number in range(3)],
        message(3),
    ]
    assert server.exists(dead.inflight) == 0
    assert server.zscore(keys.LEASES, dead.incarnation) is None


def test_a_message_goes_back_to_the_list_it_came_from(server: "redis.Redis") -> None:
    """Its priority is not lost."""
    urgent = keys.queue_list(LIST, 3)
    dead, other = leased_node(server, "dead"), leased_node(server, "other")
    put(server, message(1), source=urgent)
    put(server, message(2))
    dead.claim(source=urgent)
    dead.claim()
    dead.expire()
    other.renew()

    assert numbers(server, urgent) == [1]
    assert numbers(server) == [2]


def test_what_a_live_lease_holds_is_untouched(server: "redis.Redis") -> None:
    """Nobody takes from a node that renews, however often others look."""
    live, other = leased_node(server, "live"), leased_node(server, "other")
    put(server, message(0))
    live.claim()

    assert [other.renew()[1] for _ in range(3)] == [0, 0, 0]
    assert server.hlen(live.inflight) == 1


def test_a_late_renewal_before_anybody_else_noticed_keeps_what_is_held(server: "redis.Redis") -> None:
    """Nothing was given away yet, so nothing is lost by going on."""
    node = leased_node(server)
    put(server, message(0))
    node.claim()
    node.expire()

    assert node.renew()[:2] == (1, 0)
    assert server.hlen(node.inflight) == 1


def test_after_an_outage_every_lease_gets_one_more(server: "redis.Redis") -> None:
    """When nobody renewed for more than half a lease the server was away: no node is to blame."""
    first, second = leased_node(server, "first"), leased_node(server, "second")
    put(server, message(0))
    second.claim()
    second.expire()
    server.set(keys.TICK, now_ms(server) - LEASE_MS // 2 - 1000)

    assert first.renew()[1] == 0
    assert expiry_ms(server, second) > LEASE_MS - 1000
    assert server.hlen(second.inflight) == 1


def test_a_renewal_notes_when_it_was(server: "redis.Redis") -> None:
    """Else no outage could be told from a dead node."""
    node = leased_node(server)
    server.delete(keys.TICK)
    before_ms = now_ms(server)
    node.renew()

    assert before_ms <= int(server.get(keys.TICK) or 0) <= now_ms(server)


def test_a_pause_of_less_than_half_a_lease_is_no_outage(server: "redis.Redis") -> None:
    """Some other node has renewed in the meantime: who did not is dead."""
    first, second = leased_node(server, "first"), leased_node(server, "second")
    put(server, message(0))
    second.claim()
    second.expire()
    server.set(keys.TICK, now_ms(server) - LEASE_MS // 2 + 1000)

    assert first.renew()[1] == 1


def test_the_grace_shortens_no_lease(server: "redis.Redis") -> None:
    """A node with a longer lease keeps it."""
    long, short = leased_node(server, "long"), leased_node(server, "short")
    long.renew(lease_ms=600_000)
    server.set(keys.TICK, 1)
    short.renew()

    assert expiry_ms(server, long) > 500_000


def test_a_clock_that_is_set_back_prolongs_no_lease(server: "redis.Redis") -> None:
    """Leases end as long after the last renewal as they would have, of the living and of the dead."""
    hour_ms = 3_600_000
    first, second, dead = (leased_node(server, name) for name in ("first", "second", "dead"))
    put(server, message(0))
    dead.claim()
    last_ms = now_ms(server) + hour_ms
    ends_ms = {second.incarnation: last_ms + 30_000, dead.incarnation: last_ms - 1}
    server.zadd(keys.LEASES, {first.incarnation: last_ms + LEASE_MS, **ends_ms})
    server.set(keys.TICK, last_ms)

    assert first.renew()[1] == 1
    assert server.zscore(keys.LEASES, dead.incarnation) is None
    assert 0 < expiry_ms(server, second) <= 30_000
    assert LEASE_MS - 1000 < expiry_ms(server, first) <= LEASE_MS


def test_a_renewal_tells_how_many_nodes_live(server: "redis.Redis") -> None:
    """Those whose lease has not ended, whoever asks; one that was just given back counts no more."""
    first, second, dead = (leased_node(server, name) for name in ("first", "second", "dead"))
    three = first.renew()[4]
    dead.expire()
    two = second.renew()[4]
    second.release()

    assert (three, two, first.renew()[4]) == (3, 2, 1)


def test_a_lease_is_not_taken_beside_a_live_one_of_the_same_name(server: "redis.Redis") -> None:
    """Of two that start at once one is refused; a longer name is another, and nothing else happens."""
    leased_node(server, "one")
    server.set(keys.TICK, 1)
    second, other = ScriptedNode(server, incarnation="one|2"), ScriptedNode(server, incarnation="one-2|1")

    assert second.renew(create=1) == (-1, 0, 0, -1, 0)
    assert server.get(keys.TICK) == b"1"
    assert other.renew(create=1)[0] == 0
    assert server.zrange(keys.LEASES, 0, -1) == [b"one-2|1", b"one|1"]


def test_a_lease_is_taken_beside_one_that_was_left_by_the_dead(server: "redis.Redis") -> None:
    """Whoever has made sure of that says so; one that has ended needs no such word."""
    first = leased_node(server, "one")
    second, third = (ScriptedNode(server, incarnation=f"one|{number}") for number in (2, 3))
    second.renew(create=2)
    first.expire()
    second.expire()
    third.renew(create=1)

    assert server.zscore(keys.LEASES, third.incarnation) is not None


def test_a_release_gives_everything_back_and_counts_nothing(server: "redis.Redis") -> None:
    """A shutdown is no failure of anything."""
    node = leased_node(server)
    put(server, *[message(number) for number in range(3)])
    node.claim(2)

    assert node.release() == 2
    assert numbers(server) == [0, 1, 2]
    assert waiting(server)[:2] == [spliced(message(0)), spliced(message(1))]
    assert server.keys(keys.PREFIX + "inflight:*") == []
    assert server.zcard(keys.LEASES) == 0


def test_what_a_node_known_to_be_dead_held_goes_back_before_its_lease_has_ended(
    server: "redis.Redis",
) -> None:
    """Whoever has the kernel's word for it says so; a lost node is counted, as when the lease ends."""
    dead = leased_node(server, "dead")
    put(server, message(0), message(1))
    dead.claim()

    assert dead.release(lost=1) == 1
    assert waiting(server) == [spliced(message(0), lost=1, lost_on="dead"), message(1)]
    assert (server.zcard(keys.LEASES), server.exists(dead.inflight)) == (0, 0)
    assert dead.release(lost=1) == 0


def test_a_renewal_prolongs_the_nodes_entry_in_the_registry(server: "redis.Redis") -> None:
    """For as long as the lease; one that has ended prolongs nothing."""
    node = leased_node(server)
    entry = keys.node("one")
    server.hset(entry, "name", "one")
    node.renew()
    prolonged_ms = int(server.pttl(entry))
    server.zrem(keys.LEASES, node.incarnation)
    server.pexpire(entry, 1000)
    node.renew()

    assert LEASE_MS - 1000 < prolonged_ms <= LEASE_MS
    assert int(server.pttl(entry)) <= 1000


def test_a_parked_message_that_is_due_is_next_in_line_in_order(server: "redis.Redis") -> None:
    """Of two that are due the one due first goes first."""
    node = leased_node(server)
    put(server, message(9))
    for number, due_ms in ((1, 100), (0, 50), (2, now_ms(server) + 60_000)):
        server.zadd(keys.DELAYED, {f"{LIST}\0".encode() + message(number): due_ms})

    assert node.renew()[2] == 2
    assert numbers(server) == [0, 1, 9]
    assert server.zcard(keys.DELAYED) == 1
