"""Large entries remember since when they wait; one node drains for one of them; it is not starved."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.conftest import Cluster, wait_until
from tests.integration.draining_kinds import NODE_BYTES
from tests.integration.scripted_node import LIST, ScriptedNode, leased_node, message, now_ms, number_of, put
from worker import keys
from worker.redis_scripts import Script, run

LARGE = keys.large(LIST)
SINCE = keys.large_since(LIST)
WAITED_MS = 30_000
MUCH = 10**9
SMALL_SECONDS = 3.0
SLACK_SECONDS = 10
"""For a loaded machine: far less than an endless stream."""


def set_aside(server: "redis.Redis", number: int, charged_bytes: int, *, waited_ms: int = WAITED_MS) -> None:
    """Set a message aside that has waited so long already."""
    put(server, message(number))
    run(server, Script.SET_ASIDE, [LIST, LARGE], "", "ok", charged_bytes, 0, waited_ms)


def drain(
    node: ScriptedNode, identity: bytes = b"", *, most_bytes: int = MUCH
) -> tuple[str, list[list[Any]]]:
    """Look at the drain, or take it; return whose it is and the entries told."""
    names = [keys.LEASES, keys.DRAIN, LARGE]
    state, *entries = run(
        node.server, Script.DRAIN, names, node.incarnation, WAITED_MS, most_bytes, 15_000, identity
    )
    return state.decode(), entries


def offered_bytes(node: ScriptedNode, *, most_bytes: int = MUCH) -> list[int]:
    """Return what the entries are charged that may be drained for."""
    state, entries = drain(node, most_bytes=most_bytes)
    if state != "free":
        pytest.fail(state)
    return [int(entry[4]) for entry in entries]


def take_drain(node: ScriptedNode) -> str:
    """Take the drain for the entry that has waited longest; return whose it is then."""
    _, entries = drain(node)
    return drain(node, entries[0][5])[0]


def claim_drained(node: ScriptedNode) -> list[int]:
    """Claim what this node drains for; return its number."""
    names = [keys.LEASES, node.inflight, LARGE, keys.DRAIN]
    _, *flat = run(node.server, Script.CLAIM_LARGE, names, node.incarnation, "1", "", "ok", 0)
    return [number_of(payload) for payload in flat[1::2]]


def test_an_entry_is_drained_for_when_it_has_waited(server: "redis.Redis") -> None:
    """The time in its list counts; a second less is too early."""
    node = leased_node(server)
    set_aside(server, 0, 10, waited_ms=WAITED_MS - 1000)
    set_aside(server, 1, 20)

    assert offered_bytes(node) == [20]


def test_what_has_waited_longest_is_told_first_and_what_is_too_large_not(server: "redis.Redis") -> None:
    """A node drains only for what it could run."""
    node = leased_node(server)
    for charged_bytes, waited_ms in ((10, 40_000), (20, 60_000), (30, 50_000)):
        set_aside(server, charged_bytes, charged_bytes, waited_ms=waited_ms)

    assert offered_bytes(node) == [20, 30, 10]
    assert offered_bytes(node, most_bytes=29) == [20, 10]


def test_what_no_node_can_run_does_not_hide_what_waits_behind_it(server: "redis.Redis") -> None:
    """However much of it has waited longer."""
    node = leased_node(server)
    for number in range(20):
        set_aside(server, number, 100, waited_ms=60_000)
    set_aside(server, 20, 10)

    assert offered_bytes(node, most_bytes=99) == [10]


def test_an_entry_of_an_older_version_waits_from_when_it_is_seen(server: "redis.Redis") -> None:
    """It is claimed and drained for like any other."""
    node = leased_node(server)
    entry = LIST.encode() + b"\0" + message(0)
    server.zadd(LARGE, {entry: 10})

    assert offered_bytes(node) == []
    assert now_ms(server) - 60_000 < (server.zscore(SINCE, entry) or 0) <= now_ms(server)
    assert [number_of(payload) for _, payload in node.claim_large(10) or []] == [0]


def test_what_an_older_version_has_claimed_is_forgotten(server: "redis.Redis") -> None:
    """It does not know since when an entry waits."""
    node = leased_node(server)
    set_aside(server, 0, 10)
    set_aside(server, 1, 20)
    server.zremrangebyrank(LARGE, 0, 0)

    assert offered_bytes(node) == [20]
    assert server.zcard(SINCE) == 1


def test_one_node_drains_at_a_time_while_its_lease_lives(server: "redis.Redis") -> None:
    """Then another one does, without waiting for anything else."""
    first, second = leased_node(server, "first"), leased_node(server, "second")
    set_aside(server, 0, 10)

    assert take_drain(first) == "held"
    assert drain(second) == ("other", [])
    first.expire()
    assert take_drain(second) == "held"
    assert drain(first) == ("other", [])


def test_a_node_without_a_lease_does_not_take_the_drain(server: "redis.Redis") -> None:
    """It may have been frozen."""
    node = leased_node(server)
    set_aside(server, 0, 10)
    node.expire()

    assert take_drain(node) == "free"
    assert server.exists(keys.DRAIN) == 0


def test_a_drain_ends_with_a_node_that_looks_no_more(server: "redis.Redis") -> None:
    """Though its lease goes on: it leaves, or its loop hangs. Each look keeps the drain for longer."""
    node = leased_node(server)
    set_aside(server, 0, 10)
    take_drain(node)
    server.pexpire(keys.DRAIN, 5_000)
    drain(node)

    assert 5_000 < server.pttl(keys.DRAIN) <= 15_000


def test_only_its_holder_ends_a_drain(server: "redis.Redis") -> None:
    """The entry goes on waiting."""
    first, second = leased_node(server, "first"), leased_node(server, "second")
    set_aside(server, 0, 10)
    take_drain(first)

    assert run(server, Script.DRAIN_END, [keys.DRAIN], second.incarnation) == 0
    assert run(server, Script.DRAIN_END, [keys.DRAIN], first.incarnation) == 1
    assert take_drain(second) == "held"


def test_the_entry_drained_for_is_claimed_though_others_are_alike(server: "redis.Redis") -> None:
    """Among equals the longest waiting could be the last for ever; its claim ends the drain."""
    node = leased_node(server)
    for number, waited_ms in ((0, 40_000), (1, 60_000), (2, 50_000)):
        set_aside(server, number, 10, waited_ms=waited_ms)
    take_drain(node)

    assert claim_drained(node) == [1]
    assert server.exists(keys.DRAIN) == 0
    assert (server.zcard(LARGE), server.zcard(SINCE)) == (2, 2)
    assert claim_drained(node) == []


@pytest.mark.parametrize("gone", ["claimed", "cancelled"])
def test_a_drain_ends_when_its_entry_is_gone(server: "redis.Redis", gone: str) -> None:
    """Whoever has taken it."""
    first, second = leased_node(server, "first"), leased_node(server, "second")
    put(server, message(0, project="p", stage="match", item="a"))
    run(server, Script.SET_ASIDE, [LIST, LARGE], "", "ok", 10, 0, WAITED_MS)
    take_drain(first)
    if gone == "claimed":
        second.claim_large(10)
    else:
        server.hset(keys.project("p"), "state", "cancelled")
        run(server, Script.CANCEL_SET, [LARGE], "p", 0, 10)

    assert claim_drained(first) == []
    assert drain(first) == ("free", [])
    assert server.exists(keys.DRAIN, SINCE) == 0


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a job."""

    node: str
    at_ns: int


def starts(cluster: Cluster, log: str) -> list[Start]:
    """Return the starts that jobs have noted, in this order."""
    path = cluster.folder / log
    lines = path.read_text().splitlines() if path.exists() else []
    return [Start(node=line.split()[1], at_ns=int(line.split()[4])) for line in lines]


def send_small(cluster: Cluster, numbers: range, **payload: Any) -> None:
    """Send small jobs."""
    with cluster.stock as client:
        for number in numbers:
            kwargs = {"number": number, "log": str(cluster.folder / "small"), "sleep_seconds": SMALL_SECONDS}
            client.send_task("drain.small", queue="drain.small", kwargs={**kwargs, **payload})


def start_busy(cluster: Cluster, name: str, gate: Path) -> None:
    """Start a node that runs two small jobs, of which one ends at a time once the gate is there."""
    already = len(starts(cluster, "small"))
    for seconds in (SMALL_SECONDS / 2, SMALL_SECONDS):
        send_small(cluster, range(1), sleep_seconds=seconds, wait_for_file=str(gate))
    modules = '["tests.integration.draining_kinds"]'
    cluster.start_worker(name, kind_modules=modules, cpus=2, memory_bytes=NODE_BYTES)
    wait_until(lambda: len(starts(cluster, "small")) == already + 2, f"{name} is busy")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a node of one thread runs no two small jobs")
def test_a_job_for_a_whole_node_is_not_starved_by_an_endless_stream(cluster: Cluster) -> None:
    """It waits for 28 s, then for what runs on one node; the other node never drains."""
    gate = cluster.folder / "gate"
    for name in ("first", "second"):
        start_busy(cluster, name, gate)
    send_small(cluster, range(50))
    gate.touch()
    cluster.send("drain.whole", kwargs={"number": 0, "log": str(cluster.folder / "whole")})
    sent_ns = time.monotonic_ns()

    def has_started() -> bool:
        if cluster.server.llen("drain.small") < 20:
            send_small(cluster, range(30))
        return bool(starts(cluster, "whole"))

    wait_until(has_started, "the large job has started")

    (whole,) = starts(cluster, "whole")
    assert (whole.at_ns - sent_ns) / 1e9 < 30 + SMALL_SECONDS + SLACK_SECONDS
    assert [worker.name for worker in cluster.workers if "drain_begins" in worker.log] == [whole.node]
