"""The threads that keep a lease: what holds up one of them, or its connection, ends no lease."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest
import redis

from tests.external_server import external_server
from tests.integration.conftest import DEADLINE_SECONDS, wait_until
from tests.integration.scripted_node import ScriptedNode, leased_node, message, now_ms, put, spliced, waiting
from tests.redis_proxy import redis_proxy
from worker import keys
from worker.caretaker import Caretaker
from worker.connections import plain_client
from worker.lease import Lease
from worker.machine import Place, take_place
from worker.namesakes import NameTakenError
from worker.settings import Settings

MIB = 2**20
Kept = Callable[[Lease], None]


@pytest.fixture
def keep(server: "redis.Redis") -> Iterator[Kept]:
    """Return a function that takes a lease and has it kept to the test's end."""
    kept: list[Lease] = []

    def taken(lease: Lease) -> None:
        kept.append(lease)
        lease.ensure(server)

    yield taken
    for lease in kept:
        lease.release(server)


def url_of(broker_url: str) -> str:
    """Return the server's URL in redis-py's spelling."""
    return broker_url.replace("redis+socket://", "unix://", 1)


def given_back_during(server: "redis.Redis", lease: Lease, renewals: int) -> int:
    """Return how many messages another node took for an ended lease's, until it was renewed so often."""
    server.hset(lease.inflight_key, "1:0001:noop", message(0))
    other, given_back = leased_node(server, "other"), 0
    ends: set[float | None] = set()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(ends) <= renewals and time.monotonic() < deadline:
        given_back += other.renew()[1]
        ends.add(server.zscore(keys.LEASES, lease.incarnation))
        time.sleep(0.01)
    assert len(ends) > renewals
    return given_back


def test_a_node_that_cannot_say_what_it_is_keeps_its_lease(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """A driver that hangs holds up nothing but the registry, whose entry stays as it was."""
    can_answer = Event()
    can_answer.set()

    def describe() -> dict[str, str]:
        can_answer.wait()
        return {"name": "one"}

    lease = Lease(url_of(broker_url), "one", 2.0, describe)
    keep(lease)
    can_answer.clear()
    try:
        given_back = given_back_during(server, lease, 4)
        lease.ensure(server)
        entry = server.hgetall(keys.node("one"))
    finally:
        can_answer.set()

    assert given_back == 0
    assert entry == {b"name": b"one"}


def test_a_node_that_fails_to_say_what_it_is_keeps_its_lease(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """Watching fails open: the entry is as it was, and told again once that is possible."""
    answers = [{"name": "one"}, {}, {}, {"name": "again"}]
    lease = Lease(url_of(broker_url), "one", 2.0, lambda: answers.pop(0) if len(answers) > 1 else answers[0])
    keep(lease)

    assert given_back_during(server, lease, 1) == 0
    wait_until(lambda: server.hget(keys.node("one"), "name") == b"again", "the entry is told again")


def test_a_dead_connection_is_replaced_before_the_lease_has_ended(tmp_path: Path) -> None:
    """Half-open TCP: nothing comes back any more, and nobody closes it."""
    with external_server(tmp_path) as url, redis_proxy(urlsplit(url).port or 0) as proxy:
        server = plain_client(url)
        lease = Lease(f"redis://127.0.0.1:{proxy.port}/0", "one", 2.0, lambda: {"name": "one"})
        lease.ensure(server)
        before = given_back_during(server, lease, 2)
        proxy.forsake()
        after = given_back_during(server, lease, 2)
        failed_renewals = lease.failed_renewals
        lease.release(server)
        server.close()

    assert (before, after) == (0, 0)
    assert failed_renewals >= 1


def test_the_servers_time_is_known_without_asking(
    server: "redis.Redis", broker_url: str, keep: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the last renewal on, by a clock that does not jump; this machine's date is no matter."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    lease = Lease(url_of(broker_url), "one", 60.0, lambda: {"name": "one"})
    before_ms = now_ms(server)
    keep(lease)
    known_ms = lease.server_now_ms()

    assert before_ms <= known_ms <= now_ms(server)


def test_a_renewal_that_finds_the_lease_ended_takes_it_again(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """Nobody has to claim first: what runs is another's by now, but the node is there."""
    lease = Lease(url_of(broker_url), "one", 60.0, lambda: {"name": "one"})
    keep(lease)
    server.zrem(keys.LEASES, lease.incarnation)
    lease._renew_or_complain(server)

    assert server.zscore(keys.LEASES, lease.incarnation) is not None


def test_whoever_takes_the_lease_again_has_it_renewed_again(broker_url: str, keep: Kept) -> None:
    """Though the thread that did so has ended."""
    lease = Lease(url_of(broker_url), "one", 60.0, lambda: {"name": "one"})
    ended = lease._thread = Thread()
    keep(lease)

    assert lease._thread.is_alive()
    assert lease._thread is not ended


def test_a_renewal_comes_when_the_next_parked_message_is_due(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """And just after that, for it is the renewal that puts it back."""
    lease = Lease(url_of(broker_url), "one", 60.0, lambda: {"name": "one"})
    keep(lease)
    server.zadd(keys.DELAYED, {"noop\0{}": now_ms(server) + 2000})

    assert 0 < lease._renew_or_complain(server) <= 2.002


def test_the_entry_of_a_node_ends_with_its_lease(server: "redis.Redis") -> None:
    """Also where it is written once and never prolonged; nothing is written once the node leaves."""
    caretaker = Caretaker("one", 60_000, lambda: {"name": "one"}, None)
    caretaker.tell(server)
    left_ms = int(server.pttl(keys.node("one")))
    caretaker.stop(server)
    caretaker.tell(server)

    assert 0 < left_ms <= 60_000
    assert server.exists(keys.node("one")) == 0


@pytest.mark.parametrize(("lease_seconds", "pause_seconds"), [(11.7, 3.9), (12.3, 4.0), (600.0, 4.0)])
def test_ended_leases_are_looked_for_every_few_seconds(
    server: "redis.Redis", broker_url: str, keep: Kept, lease_seconds: float, pause_seconds: float
) -> None:
    """A third of a lease, but however long that is: who has died is noticed within 5 s after its end."""
    lease = Lease(url_of(broker_url), "one", lease_seconds, lambda: {"name": "one"})
    keep(lease)

    assert lease._renew_or_complain(server) == pytest.approx(pause_seconds)


def test_a_name_is_taken_however_short_its_owners_lease_is(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """Less than half of ours is always left of it, and it lives."""
    keep(Lease(url_of(broker_url), "one", 1.0, lambda: {"name": "one"}))
    refused = Lease(url_of(broker_url), "one", 600.0, lambda: {"name": "one"})
    with pytest.raises(NameTakenError):
        refused.ensure(server)
    refused.release(server)

    assert server.exists(keys.node("one")) == 1


def test_the_leases_of_other_names_are_nobodys_namesakes(
    server: "redis.Redis", broker_url: str, keep: Kept
) -> None:
    """They are renewed while a dead node's is outwaited."""
    keep(Lease(url_of(broker_url), "one-2", 0.6, lambda: {"name": "one-2"}))
    server.zadd(keys.LEASES, {"one|dead": now_ms(server) + 1000})
    lease = Lease(url_of(broker_url), "one", 60.0, lambda: {"name": "one"})
    keep(lease)

    assert server.zscore(keys.LEASES, lease.incarnation) is not None


def test_of_two_that_outwait_a_dead_node_of_their_name_one_is_refused(
    server: "redis.Redis", broker_url: str, keep: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both see its lease end; the one that comes second finds that of the other, and looks again."""
    server.zadd(keys.LEASES, {"one|dead": now_ms(server) + 300})
    server.set(keys.TICK, now_ms(server))
    first, second = (Lease(url_of(broker_url), "one", 2.0, lambda: {"name": "one"}) for _ in range(2))
    outwait = second._outwait_namesakes

    def outwait_and_come_second(client: "redis.Redis") -> bool:
        is_left = outwait(client)
        keep(first)
        return is_left

    monkeypatch.setattr(second, "_outwait_namesakes", outwait_and_come_second)
    with pytest.raises(NameTakenError):
        second.ensure(server)

    assert server.zrange(keys.LEASES, 0, -1) == [first.incarnation.encode()]


class Machine:
    """One machine, on which workers die."""

    def __init__(self, server: "redis.Redis", folder: Path, broker_url: str) -> None:
        self._server = server
        self._folder = folder
        self._broker_url = broker_url

    def take_place(self, name: str) -> Place:
        """Take the place of a small worker."""
        settings = Settings(broker_url=self._broker_url, name=name, lock_folder=self._folder)
        return take_place(settings.model_copy(update={"memory_bytes": MIB, "cpus": 1}))

    def worker_with_two_jobs(self, name: str) -> Place:
        """Return a worker that holds two messages."""
        place = self.take_place(name)
        node = ScriptedNode(self._server, incarnation=place.partition.incarnation)
        node.renew(create=1)
        put(self._server, message(1), message(2))
        node.claim(2)
        return place


@pytest.fixture
def machine(
    server: "redis.Redis", broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    """Return a machine with room for all."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    return Machine(server, tmp_path / "machine", broker_url)


def lease_of(place: Place) -> Lease:
    """Return the lease of a worker, still to be taken; a minute, which no test waits for."""
    settings = place.settings
    return Lease(settings.redis_url, settings.name, 60.0, lambda: {"name": settings.name}, place)


def test_a_worker_takes_over_from_the_one_that_was_killed_in_its_place(
    server: "redis.Redis", machine: Machine, keep: Kept, tmp_path: Path
) -> None:
    """Its messages are next in line at once, with a lost node counted, and nobody takes it for a namesake."""
    killed = machine.worker_with_two_jobs("one")
    os.close(killed.descriptor)
    place = machine.take_place("one")
    lease = lease_of(place)
    keep(lease)

    assert waiting(server) == [spliced(message(number), lost=1, lost_on="one") for number in (1, 2)]
    assert server.zrange(keys.LEASES, 0, -1) == [lease.incarnation.encode()]
    assert lease.given_back == 2
    assert list((tmp_path / "machine").iterdir()) == [place.path]
    os.close(place.descriptor)


def test_what_a_living_neighbour_holds_is_its_own_until_it_is_killed(
    server: "redis.Redis", machine: Machine, keep: Kept
) -> None:
    """Then its neighbour gives it back, whose own lease goes on."""
    neighbour, place = machine.worker_with_two_jobs("one"), machine.take_place("two")
    lease = lease_of(place)
    keep(lease)
    before = waiting(server)
    os.close(neighbour.descriptor)
    lease.tell_soon()
    wait_until(lambda: len(waiting(server)) == 2, "the messages are back")

    assert before == []
    assert server.zrange(keys.LEASES, 0, -1) == [lease.incarnation.encode()]
    os.close(place.descriptor)


def test_a_lock_folder_that_is_gone_keeps_nobody_from_the_queue(
    server: "redis.Redis", machine: Machine, keep: Kept, tmp_path: Path
) -> None:
    """Then the leases of the dead are outwaited, as those of other machines are."""
    place = machine.take_place("one")
    (tmp_path / "machine").rename(tmp_path / "gone")
    keep(lease_of(place))

    assert server.zcard(keys.LEASES) == 1
    os.close(place.descriptor)
