"""The list of dead jobs keeps what a retry needs, within its bounds; a retry takes a job out of it, once."""

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from tests.integration.conftest import Cluster
from tests.integration.scripted_node import (
    LIST,
    ScriptedNode,
    leased_node,
    message,
    numbers,
    put,
    spliced,
    waiting,
)
from worker import dead_list, keys
from worker.cli import app
from worker.dead_jobs import DeadJob
from worker.dead_list import PutBack

KIB = 1024


@pytest.fixture
def node(server: "redis.Redis") -> ScriptedNode:
    """Return a node with a lease."""
    return leased_node(server)


def fail(node: ScriptedNode, *, keeps: bool = True, mark: str = "ok", **options: Any) -> DeadJob:
    """Claim the next message and let it die; return its report."""
    (held,) = node.claim(mark=mark) or []
    told = {"kind": LIST, "job_id": json.loads(held[1])["headers"]["id"], "cause": "torn"}
    place = {part: options.pop(part) for part in ("project", "stage", "item") if part in options}
    report = json.dumps(told | place)
    node.settle({"tag": held[0], "action": "failed", "report": report, "keeps_message": keeps}, **options)
    return next(dead_list.jobs(node.server))


def ids(server: "redis.Redis") -> list[str]:
    """Return who is dead, newest first."""
    return [job.job_id for job in dead_list.jobs(server)]


def kept(server: "redis.Redis") -> tuple[int, int]:
    """Return how many messages are kept, and the bytes that are counted for them."""
    return int(server.hlen(keys.DEAD_MESSAGES)), int(server.hget(keys.TOTALS, "kept_bytes") or 0)


def test_a_job_goes_back_as_it_was_sent_behind_those_that_wait(
    server: "redis.Redis", node: ScriptedNode
) -> None:
    """Its attempts and what it was thought to need are forgotten; nothing of it stays behind."""
    put(server, spliced(message(0), attempts=2, lost=1), message(1))
    dead = fail(node, mark="solo")

    assert dead_list.put_back(server, dead) is PutBack.WAITS_AGAIN
    assert waiting(server) == [message(1), message(0)]
    assert (ids(server), kept(server)) == ([], (0, 0))
    assert server.hget(keys.TOTALS, "retried") == b"1"


def test_a_job_goes_back_to_the_list_it_came_from(server: "redis.Redis", node: ScriptedNode) -> None:
    """With the priority that its sender gave it."""
    source = keys.queue_list(LIST, 3)
    put(server, message(0), source=source)
    (held,) = node.claim(source=source) or []
    node.settle({"tag": held[0], "action": "failed", "report": '{"job_id":"0"}', "keeps_message": True})
    dead_list.put_back(server, next(dead_list.jobs(server)))

    assert numbers(server, source) == [0]


def test_of_two_retries_one_puts_it_back(server: "redis.Redis", node: ScriptedNode) -> None:
    """The other is told; there is one message."""
    put(server, message(0))
    dead = fail(node)

    assert [dead_list.put_back(server, dead) for _ in range(2)] == [PutBack.WAITS_AGAIN, PutBack.GONE]
    assert numbers(server) == [0]


def test_a_report_without_its_message_stays(server: "redis.Redis", node: ScriptedNode) -> None:
    """What cannot be put back is not lost over the try."""
    put(server, message(0))
    dead = fail(node, keeps=False)

    assert dead_list.put_back(server, dead) is PutBack.NOT_KEPT
    assert ids(server) == ["0"]


@pytest.mark.parametrize(("more_bytes", "is_kept"), [(0, 1), (1, 0)])
def test_a_message_of_more_than_64_kib_is_not_kept(
    server: "redis.Redis", node: ScriptedNode, more_bytes: int, is_kept: int
) -> None:
    """Only stock clients send such."""
    text = message(0, note="")
    put(server, message(0, note="x" * (64 * KIB - len(text) + more_bytes)))
    fail(node)

    assert (len(ids(server)), kept(server)[0]) == (1, is_kept)


def test_the_oldest_make_room_when_their_messages_take_too_much(
    server: "redis.Redis", node: ScriptedNode
) -> None:
    """Report and message go together, and both are counted."""
    put(server, *[message(number, note="x" * KIB) for number in range(3)])
    for _ in range(2):
        fail(node)
    two_bytes = kept(server)[1]
    fail(node, most_dead_bytes=two_bytes)

    assert (ids(server), kept(server)) == (["2", "1"], (2, two_bytes))
    assert server.hget(keys.TOTALS, "forgotten") == b"1"


def test_a_list_that_somebody_has_deleted_holds_up_no_settlement(
    server: "redis.Redis", node: ScriptedNode
) -> None:
    """What was kept for its reports nobody can ask for any more: it goes where it would be in the way."""
    put(server, message(0), message(1))
    fail(node)
    server.delete(keys.DEAD)
    (held,) = node.claim() or []
    entry = {"tag": held[0], "action": "failed", "report": '{"kind":"noop"}', "keeps_message": True}
    node.settle(entry, most_dead_bytes=0)

    assert (ids(server), kept(server)) == ([], (0, 0))


def test_the_reports_of_a_project_or_of_an_item_are_forgotten(
    server: "redis.Redis", node: ScriptedNode
) -> None:
    """Those of others stay, in their order; also beyond the first stretch."""
    places = [("p", "s", "a"), ("q", "s", "b"), ("p", "s", "b")] * 400 + [("p", "t", "b")]
    put(server, *[message(number) for number in range(len(places))])
    for number, (project, stage, item) in enumerate(places):
        (held,) = node.claim() or []
        report = json.dumps({"job_id": str(number), "project": project, "stage": stage, "item": item})
        node.settle({"tag": held[0], "action": "failed", "report": report}, most_dead=9999)
    of_item = dead_list.forget(server, "p", "s", "b")
    of_project = dead_list.forget(server, "p", "", "")

    assert (of_item, of_project) == (400, 401)
    assert ids(server) == [str(number) for number in range(1198, 0, -3)]
    assert server.hget(keys.TOTALS, "forgotten") == b"801"


def test_what_is_no_report_is_passed_over(server: "redis.Redis", node: ScriptedNode) -> None:
    """Neither looking nor forgetting stumbles."""
    put(server, message(0))
    fail(node, project="p", stage="s", item="i")
    server.lpush(keys.DEAD, "", "[]", "\xff", '{"attempts":[]}')

    assert ids(server) == ["0"]
    assert dead_list.forget(server, "p", "", "") == 1


def test_a_job_that_dies_while_the_list_is_read_shows_none_twice(
    server: "redis.Redis", node: ScriptedNode
) -> None:
    """It moves what was read into the next stretch."""
    put(server, *[message(number) for number in range(600)])
    for _ in range(599):
        fail(node, most_dead=9999)
    reading = dead_list.jobs(server)
    seen = [next(reading).job_id]
    fail(node, most_dead=9999)
    seen += [job.job_id for job in reading]

    assert seen == [str(number) for number in range(598, -1, -1)]


def test_the_command_lists_the_dead_and_retry_puts_one_back(cluster: Cluster, node: ScriptedNode) -> None:
    """Chosen by kind; as text, and as JSON."""
    options = ["--broker", cluster.broker_url, "--store", str(cluster.folder / "store")]
    put(cluster.server, message(7), message(8))
    fail(node)
    fail(node, project="castle", stage="s", item="i")
    told = CliRunner().invoke(app, ["dead", *options]).stdout
    of_castle = CliRunner().invoke(app, ["dead", *options, "--project", "castle", "--json"]).stdout
    of_others = CliRunner().invoke(app, ["dead", *options, "--kind", "other", "--json"]).stdout
    retried = CliRunner().invoke(app, ["retry", "7", *options, "--json"])
    again = CliRunner().invoke(app, ["retry", "7", *options])

    newer, _, older, cause = told.splitlines()
    assert newer.startswith("8  noop in castle: failed, at 20")
    assert (older.startswith("7  noop: failed, at 20"), cause) == (True, "  torn")
    assert [job["job_id"] for job in json.loads(of_castle)["dead"]] == ["8"]
    assert json.loads(of_others) == {"dead": []}
    assert json.loads(retried.stdout) == {"job": "7"}
    assert again.exit_code == 2
    assert "nor a job that has failed" in again.stderr
    assert numbers(cluster.server) == [7]
