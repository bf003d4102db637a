"""Cancelling takes one project out of the queues, wherever its messages are, and lets nothing follow."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.integration.scripted_node import LIST, ScriptedNode, leased_node, message, number_of, put, waiting
from worker import keys, project_queue
from worker.project_queue import ProjectQueue
from worker.redis_scripts import Script, run

STAGES = json.dumps(["plan", "match", "verify"])


@pytest.fixture
def queue(broker_url: str) -> Iterator[ProjectQueue]:
    """Return a client of the fresh server."""
    queue = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))
    yield queue
    queue.close()


def job(number: int, project: str = "p", stage: str = "match") -> dict[str, str]:
    """Return a job as the scripts push it, its headers naming its place."""
    place = {"project": project, "stage": stage, "item": str(number)}
    return {"list": LIST, "payload": message(number, **place).decode(), **place}


def start(server: "redis.Redis", project: str, numbers: list[int], **plan: Any) -> None:
    """Start a project; its plan has been settled and has pushed a job for each number."""
    names, first = [keys.project(project)], json.dumps(job(0, project, "plan"))
    run(server, Script.START_PROJECT, names, first, STAGES, "until", "model")
    node = leased_node(server, "planner")
    tag = next(tag for tag, payload in node.claim(1000) or [] if number_of(payload) == 0)
    pushes = [job(number, project) for number in numbers]
    node.settle(settlement(tag, "done", 0, project, "plan", pushes=pushes, **plan))
    node.release()


def settlement(
    tag: str, action: str, number: int, project: str = "p", stage: str = "match", **more: Any
) -> dict[str, Any]:
    """Return the settlement of a job of a project."""
    return {"tag": tag, "action": action, "project": project, "stage": stage, "item": str(number), **more}


def numbers(server: "redis.Redis") -> list[int]:
    """Return what waits, the next in line first."""
    return [number_of(payload) for payload in waiting(server)]


def fields(server: "redis.Redis", *names: str) -> list[str]:
    """Return fields of the hash of project p."""
    values: list[Any] = server.hmget(keys.project("p"), list(names))
    return [(value or b"").decode() for value in values]


def claim_first(server: "redis.Redis") -> tuple[ScriptedNode, str]:
    """Claim the next job; return the node and the tag."""
    node = leased_node(server)
    ((tag, _),) = node.claim() or []
    return node, tag


def test_its_waiting_jobs_are_removed_and_the_others_keep_their_order(
    server: "redis.Redis", queue: ProjectQueue
) -> None:
    """Jobs of another project and of nobody lie between them."""
    start(server, "p", [1, 2])
    start(server, "q", [3, 4])
    put(server, message(5), b"no message")
    for late in (6, 7):
        put(server, job(late)["payload"].encode())

    assert queue.cancel("p", [LIST]) == ("running", 4)
    assert waiting(server)[3] == b"no message"
    assert [number_of(payload) for payload in waiting(server)[:3]] == [3, 4, 5]
    assert fields(server, "state", "outstanding") == ["cancelled", "0"]


@pytest.mark.parametrize("stretch", [1, 2, 3, 7, 8, 9])
def test_a_stretch_of_any_length_removes_all(
    server: "redis.Redis", queue: ProjectQueue, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    """What is removed moves the rest, and no message is passed over."""
    monkeypatch.setattr(project_queue, "_STRETCH", stretch)
    start(server, "p", [1, 2, 3, 4])
    start(server, "q", [11, 12])
    for late in (5, 6):
        put(server, job(late)["payload"].encode())

    assert queue.cancel("p", [LIST]) == ("running", 6)
    assert numbers(server) == [11, 12]


def test_delayed_and_large_ones_are_removed_too(server: "redis.Redis", queue: ProjectQueue) -> None:
    """Each counted out of its stage."""
    start(server, "p", [1, 2, 3])
    node, tag = claim_first(server)
    node.settle(settlement(tag, "park", 1, delay_ms=60_000))
    run(server, Script.SET_ASIDE, [LIST, keys.large(LIST)], "", "ok", 100, 0)

    assert queue.cancel("p", [LIST]) == ("running", 3)
    assert [server.zcard(name) for name in (keys.DELAYED, keys.large(LIST))] == [0, 0]
    assert server.exists(keys.stage_todo("p", "match")) == 0


def test_others_stay_delayed_and_large(server: "redis.Redis", queue: ProjectQueue) -> None:
    """Other projects are not touched."""
    start(server, "p", [])
    start(server, "q", [1, 2])
    node, tag = claim_first(server)
    node.settle(settlement(tag, "park", 1, "q", delay_ms=60_000))
    run(server, Script.SET_ASIDE, [LIST, keys.large(LIST)], "", "ok", 100, 0)

    assert queue.cancel("p", [LIST]) == ("running", 0)
    assert [server.zcard(name) for name in (keys.DELAYED, keys.large(LIST))] == [1, 1]


@pytest.mark.parametrize("action", ["done", "failed", "not_ready"])
def test_nothing_follows_from_what_still_runs(
    server: "redis.Redis", queue: ProjectQueue, action: str
) -> None:
    """No job, no plan, no new state, no report."""
    start(server, "p", [1])
    node, tag = claim_first(server)
    queue.cancel("p", [LIST])
    follows: dict[str, Any] = {"continuation": json.dumps(job(0, stage="plan")), "continue_at": 9}
    told: dict[str, Any] = {"progress": {"state": "running"}, "report": "{}"}
    node.settle(settlement(tag, action, 1, pushes=[job(2)], **follows, **told))

    assert numbers(server) == []
    assert fields(server, "state", "outstanding", "next_expand") == ["cancelled", "0", ""]
    assert server.llen(keys.DEAD) == 0


def test_what_still_runs_is_counted_where_it_is_done(server: "redis.Redis", queue: ProjectQueue) -> None:
    """Its artefact is in the store."""
    start(server, "p", [1, 2])
    node, tag = claim_first(server)
    queue.cancel("p", [LIST])
    node.settle(settlement(tag, "done", 1))

    assert fields(server, "match:done", "match:failed") == ["1", ""]


def test_the_plan_that_waits_for_the_window_to_empty_is_forgotten(
    server: "redis.Redis", queue: ProjectQueue
) -> None:
    """It would go on when the last job is settled."""
    start(server, "p", [1], continuation=json.dumps(job(9, stage="plan")), continue_at=0)
    node, tag = claim_first(server)
    planned = fields(server, "continue_at")
    queue.cancel("p", [LIST])
    node.settle(settlement(tag, "done", 1))

    assert planned == ["0"]
    assert numbers(server) == []


@pytest.mark.parametrize("how", ["requeue", "park", "release", "lease ends"])
def test_what_is_given_back_later_is_dropped(server: "redis.Redis", queue: ProjectQueue, how: str) -> None:
    """A child was killed, a node has left or died; the other project's job does come back."""
    start(server, "p", [1])
    start(server, "q", [2])
    node = leased_node(server)
    tags = [tag for tag, _ in node.claim(2) or []]
    queue.cancel("p", [LIST])
    if how in {"requeue", "park"}:
        entries = zip(tags, (1, 2), "pq", strict=True)
        node.settle(*(settlement(tag, how, number, of, delay_ms=0) for tag, number, of in entries))
    elif how == "release":
        node.release()
    else:
        node.expire()
    leased_node(server, "heir").renew()

    assert numbers(server) == [2]
    assert fields(server, "outstanding") == ["0"]


def test_a_delayed_one_that_is_due_is_dropped(server: "redis.Redis") -> None:
    """A message that was on its way when the sets were looked through."""
    start(server, "p", [1])
    node, tag = claim_first(server)
    node.settle(settlement(tag, "park", 1, delay_ms=0))
    server.hset(keys.project("p"), "state", "cancelled")
    node.renew()

    assert numbers(server) == []
    assert fields(server, "outstanding") == ["0"]


@pytest.mark.parametrize("state", ["done", "failed"])
def test_a_project_that_is_over_is_not_cancelled(
    server: "redis.Redis", queue: ProjectQueue, state: str
) -> None:
    """Its state stays what it was."""
    start(server, "p", [1])
    server.hset(keys.project("p"), "state", state)

    assert queue.cancel("p", [LIST]) == (state, 0)
    assert (numbers(server), fields(server, "state")) == ([1], [state])


def test_cancelling_an_unknown_project_makes_none(server: "redis.Redis", queue: ProjectQueue) -> None:
    """A name nobody started."""
    assert queue.cancel("p", [LIST]) == ("", 0)
    assert server.exists(keys.project("p")) == 0


def test_cancelling_can_be_finished_by_another_call(server: "redis.Redis", queue: ProjectQueue) -> None:
    """The first was killed after it had marked the project."""
    start(server, "p", [1, 2])
    run(server, Script.CANCEL_PROJECT, [keys.project("p")])

    assert queue.cancel("p", [LIST]) == ("cancelled", 2)
    assert numbers(server) == []


def test_a_cancelled_project_starts_again_from_its_plan(server: "redis.Redis", queue: ProjectQueue) -> None:
    """And what another call of cancel still wanted to remove stays: it is not cancelled any more."""
    start(server, "p", [1, 2])
    queue.cancel("p", [LIST])

    assert queue.start("p", until="model")
    assert fields(server, "state", "outstanding") == ["running", "1"]
    assert run(server, Script.CANCEL_LIST, ["pipeline.expand\x06\x166"], "p", 0, 10) == [0, 0]
    assert server.llen("pipeline.expand\x06\x166") == 1


def test_what_is_parked_of_a_project_that_was_started_again_stays(
    server: "redis.Redis", queue: ProjectQueue
) -> None:
    """Another call of cancel still wanted to remove it."""
    start(server, "p", [1])
    node, tag = claim_first(server)
    node.settle(settlement(tag, "park", 1, delay_ms=60_000))
    run(server, Script.CANCEL_PROJECT, [keys.project("p")])
    queue.start("p", until="model")

    assert run(server, Script.CANCEL_SET, [keys.DELAYED], "p", 0, 10) == [b"0", 0]
    assert server.zcard(keys.DELAYED) == 1


def test_jobs_that_nodes_hold_are_named_with_their_node(server: "redis.Redis", queue: ProjectQueue) -> None:
    """Those of the project only."""
    start(server, "p", [1])
    start(server, "q", [2])
    leased_node(server, "nimble").claim(2)

    assert queue.running("p") == {"1": "nimble"}
