"""Wherever a job is, and however it has left, it is counted once."""

import json
from dataclasses import replace
from typing import Any

import redis

from tests.integration.scripted_node import LIST, ScriptedNode, job, leased_node, message, put
from worker import keys
from worker.queue_counts import QueueCounts, count_jobs
from worker.redis_scripts import Script, run

NONE = QueueCounts(
    waiting={LIST: 0},
    large={LIST: 0},
    delayed=0,
    claimed=0,
    dead=0,
    done=0,
    not_ready=0,
    dropped=0,
    forgotten=0,
    failed=0,
    retried=0,
    pushed=0,
)


def counts(server: "redis.Redis") -> QueueCounts:
    """Count the jobs of the one kind."""
    return count_jobs(server, [LIST])


def settle(node: ScriptedNode, action: str, **more: Any) -> None:
    """Claim the next message and settle it."""
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": action, **more})


def test_an_empty_server_has_no_jobs(server: "redis.Redis") -> None:
    """Nothing has to be there to be counted."""
    assert counts(server) == NONE


def test_each_place_of_a_job_is_counted(server: "redis.Redis") -> None:
    """One message in each, two wait."""
    put(server, *[message(number) for number in range(5)], message(5))
    server.rpoplpush(LIST, keys.queue_list(LIST, 6))
    node = leased_node(server)
    settle(node, "park", attempts=0, delay_ms=50_000)
    settle(node, "failed", report='{"kind":"noop"}')
    node.claim()
    run(server, Script.SET_ASIDE, [LIST, keys.large(LIST)], "", "ok", 7, 0)

    assert counts(server) == replace(
        NONE, waiting={LIST: 2}, large={LIST: 1}, delayed=1, claimed=1, dead=1, failed=1
    )
    assert (counts(server).open, counts(server).over, counts(server).total) == (5, 1, 6)


def test_each_way_out_is_counted(server: "redis.Redis") -> None:
    """Done (two at once), left for want of an input, failed and forgotten."""
    put(server, *[message(number) for number in range(5)])
    node = leased_node(server)
    node.settle(*[{"tag": tag, "action": "done"} for tag, _ in node.claim(2) or []])
    settle(node, "not_ready")
    settle(node, "failed", report='{"kind":"noop"}')
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "failed", "report": '{"kind":"noop"}'}, most_dead=1)

    assert counts(server) == replace(NONE, done=2, not_ready=1, dead=1, failed=2, forgotten=1)
    assert counts(server).total == 5


def test_what_a_cancelled_project_leaves_is_counted_as_dropped(server: "redis.Redis") -> None:
    """Waiting, delayed, given back, finished: each once."""
    place = {"project": "p", "stage": "match"}
    first = json.dumps(job("import:0", stage="plan"))
    run(server, Script.START_PROJECT, [keys.project("p")], first, json.dumps(["plan", "match"]))
    put(server, *[message(number, **place, item=str(number)) for number in range(4)])
    node = leased_node(server)
    claimed = node.claim(3) or []
    entries = [{"tag": tag, **place, "item": str(item)} for item, (tag, _) in enumerate(claimed)]
    run(server, Script.CANCEL_PROJECT, [keys.project("p")])
    node.settle({**entries[0], "action": "done"}, {**entries[1], "action": "requeue", "attempts": 0})
    node.release()
    run(server, Script.CANCEL_LIST, [LIST], "p", 0, 100)

    assert counts(server) == replace(NONE, dropped=5, pushed=1)
    assert counts(server).total - counts(server).pushed == 4


def test_a_lost_node_holds_its_jobs_until_they_are_given_back(server: "redis.Redis") -> None:
    """The sum is right at every moment between."""
    put(server, message(0))
    dead, heir = leased_node(server, "dead"), leased_node(server, "heir")
    dead.claim()
    dead.expire()
    before = counts(server)
    heir.renew()

    assert (before, counts(server)) == (replace(NONE, claimed=1), replace(NONE, waiting={LIST: 1}))
