"""A server whose memory is full refuses what is new, and nothing that must go on; all of it or nothing."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.errors import Failure, Reason
from tasks.parameters import ProjectParameters
from tasks.store import Store
from tests.integration.conftest import Cluster, wait_until
from tests.integration.scripted_node import LIST, ScriptedNode, job, leased_node, message, numbers, put
from worker import keys
from worker.caretaker import Caretaker
from worker.client import Client
from worker.project_queue import ProjectQueue, QueueError
from worker.redis_scripts import Script, run

FAILURE = Failure(name="a", reason=Reason.UNREADABLE, cause="broken", cure="mend it")


def fill(server: "redis.Redis") -> None:
    """Leave no memory: whatever may take some is refused from now on."""
    server.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        server.set("anything", "1")


def everything(server: "redis.Redis") -> dict[bytes, bytes | None]:
    """Return all that the server holds."""
    names: list[Any] = sorted(server.keys("*"))
    return {name: server.dump(name) for name in names}


def full_node(server: "redis.Redis", *, claimed: int = 1) -> ScriptedNode:
    """Return a node of a full server, with claimed messages and one that waits."""
    node = leased_node(server)
    put(server, *[message(number) for number in range(claimed + 1)])
    node.claim(claimed)
    fill(server)
    return node


def test_a_lease_is_renewed_and_taken(server: "redis.Redis") -> None:
    """Nobody loses what it holds for want of memory."""
    node = full_node(server)
    before = server.zscore(keys.LEASES, node.incarnation)

    assert node.renew(lease_ms=600_000)[0] == 1
    assert (server.zscore(keys.LEASES, node.incarnation) or 0) > (before or 0)
    assert ScriptedNode(server, incarnation="two|1").renew(create=1)[4] == 2


def test_what_a_dead_node_held_goes_back(server: "redis.Redis") -> None:
    """Moving a message takes no memory in the end."""
    node = leased_node(server)
    put(server, message(0), message(1))
    node.claim(1)
    node.expire()
    fill(server)

    _, given_back, *_ = ScriptedNode(server, incarnation="two|1").renew(create=1)

    assert (given_back, numbers(server)) == (1, [0, 1])


def test_a_message_is_claimed_and_recorded(server: "redis.Redis") -> None:
    """What runs makes room; nothing is popped that is not recorded."""
    node = full_node(server)

    assert len(node.claim(1) or []) == 1
    assert server.hlen(node.inflight) == 2
    assert numbers(server) == []


@pytest.mark.parametrize(
    "first",
    [
        {"action": "done", "project": "p", "stage": "match", "item": "a", "pushes": [job("b")]},
        {"action": "requeue", "attempts": 1},
        {"action": "park", "attempts": 0, "delay_ms": 60_000},
        {"action": "failed", "report": "{}"},
    ],
)
def test_a_settlement_is_not_refused(server: "redis.Redis", first: dict[str, Any]) -> None:
    """Whatever it has first, also the figures of a batch."""
    node = full_node(server)
    batch = {
        "action": "batch",
        "project": "p",
        "kind": LIST,
        "reserved_bytes": 1,
        "peak_bytes": 1,
        "ratio_permille": 1000,
    }

    assert node.settle(batch, {**first, "tag": node.held[0][0]}) == (1, 0)
    assert server.hlen(node.inflight) == 0


def test_a_node_that_leaves_gives_everything_back(server: "redis.Redis") -> None:
    """At once, as ever."""
    assert full_node(server, claimed=2).release() == 2
    assert numbers(server) == [0, 1, 2]


def test_a_head_is_set_aside_and_claimed_from_there(server: "redis.Redis") -> None:
    """It blocks the list, memory or not."""
    node = full_node(server)

    assert run(server, Script.SET_ASIDE, [LIST, keys.large(LIST)], "", "ok", 7, 0) == 1
    assert len(node.claim_large(7) or []) == 1
    assert server.hlen(node.inflight) == 2


def test_a_project_is_cancelled(server: "redis.Redis", broker_url: str) -> None:
    """Its messages leave the queue, and that makes room."""
    server.hset(keys.project("p"), "state", "running")
    put(server, message(0, project="p", stage="match", item="a"), message(1))
    fill(server)
    queue = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))

    assert queue.cancel("p", [LIST]) == ("running", 1)
    assert server.hget(keys.project("p"), "state") == b"cancelled"
    assert numbers(server) == [1]
    queue.close()


def test_reports_of_failed_jobs_are_dropped(server: "redis.Redis", broker_url: str) -> None:
    """That makes room, too."""
    server.lpush(keys.DEAD, '{"project": "p"}')
    fill(server)
    queue = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))

    assert queue.forget_dead("p") == 1
    assert server.llen(keys.DEAD) == 0
    queue.close()


@pytest.mark.parametrize("state", ["", "running", "done"])
def test_a_project_is_not_started_and_nothing_of_it_is_changed(
    server: "redis.Redis", broker_url: str, state: str
) -> None:
    """One sentence with the cure; what was there before is there still."""
    server.hset(keys.project("p"), mapping={"state": state, "outstanding": 3})
    before = everything(server)
    fill(server)
    queue = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))

    with pytest.raises(
        QueueError, match=r"used memory > 'maxmemory'.*; its memory is full: raise its maxmem"
    ):
        queue.start("p", until="model")

    assert everything(server) == before
    queue.close()


def test_the_registry_is_told_what_a_node_does(server: "redis.Redis") -> None:
    """A node that works must not look as it did before the memory was full."""
    told = {"name": "one", "waits_for": "nothing"}
    caretaker = Caretaker("one", 60_000, lambda: told, None)
    caretaker.tell(server)
    fill(server)
    told["waits_for"] = "memory" * 1000
    caretaker.tell(server)

    assert server.hget(keys.node("one"), "waits_for") == told["waits_for"].encode()
    assert 0 < server.pttl(keys.node("one")) <= 60_000


@pytest.mark.parametrize("name", ["farm", "job-1"])
def test_what_cannot_be_started_again_keeps_its_failures(
    server: "redis.Redis", broker_url: str, tmp_path: Path, name: str
) -> None:
    """Neither their records nor their reports are dropped for a retry that is refused."""
    project = Store(tmp_path).project("farm")
    project.create(ProjectParameters(), [])
    project.record_failure("match", "a", FAILURE)
    report = {"kind": "matcher.run", "job_id": "job-1", "project": "farm", "stage": "match", "item": "a"}
    server.lpush(keys.DEAD, json.dumps({"serial": 1, "at_ms": 1, "attempts": 3, **report}))
    before = everything(server)
    fill(server)

    with Client(broker_url, tmp_path) as client, pytest.raises(QueueError, match="'maxmemory'; its memory"):
        client.retry(name)

    assert project.failures() == [("match", "a", FAILURE)]
    assert everything(server) == before


def test_a_worker_empties_a_full_queue_and_takes_more_when_there_is_room(cluster: Cluster) -> None:
    """It keeps its lease and its place in the registry, settles and claims; nothing is lost or doubled."""
    for number in range(12):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log, "sleep_seconds": 0.2})
    worker = cluster.start_worker()
    wait_until(lambda: len(cluster.runs()) >= 1, "the first job runs")
    fill(cluster.server)
    wait_until(lambda: len(cluster.runs()) == 12 and not cluster.inflight(), "all jobs are settled")
    with pytest.raises(Exception, match="maxmemory"):
        cluster.send("noop", kwargs={"number": 98, "log": cluster.run_log})
    cluster.server.config_set("maxmemory", "0")
    cluster.send("noop", kwargs={"number": 99, "log": cluster.run_log})
    wait_until(lambda: len(cluster.runs()) == 13, "what was sent afterwards runs")

    assert sorted(number for number, _, _ in cluster.runs()) == [*range(12), 99]
    assert "lease_had_ended" not in worker.log
    assert "queue_setup" in worker.log
    assert "the append-only file is off" in worker.log
    assert cluster.dead() == []


def test_a_worker_that_starts_meanwhile_waits_and_says_why(cluster: Cluster, tmp_path: Path) -> None:
    """So does one that must connect anew; Celery alone would end."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    fill(cluster.server)
    log = tmp_path / "one.log"

    def make_room() -> None:
        wait_until(lambda: log.exists() and log.read_text().count("queue_refuses") >= 2, "it waits")
        cluster.server.config_set("maxmemory", "0")

    making_room = threading.Thread(target=make_room)
    making_room.start()
    worker = cluster.start_worker()
    making_room.join()
    wait_until(lambda: len(cluster.runs()) == 1, "the job runs")

    assert "raise its maxmemory" in worker.log
    assert "Traceback" not in worker.log
