"""Whatever nodes do to a queue, and in whatever order: no message is lost, none is doubled."""

import json
import random
from collections import Counter
from itertools import islice
from threading import Thread

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.scripted_node import (
    LIST,
    ScriptedNode,
    job,
    leased_node,
    message,
    number_of,
    put,
    waiting,
)
from worker import dead_list, keys
from worker.connections import plain_client
from worker.queue_counts import count_jobs
from worker.redis_scripts import Script, run

MESSAGES = 12
STEPS = (
    *("claim", "claim_large", "set_aside", "done", "failed", "requeue", "park"),
    *("renew", "expire", "release", "retry"),
)
Step = tuple[int, str]


def everywhere(server: "redis.Redis") -> Counter[int]:
    """Return how often each message is somewhere in the server."""
    held = [payload for key in server.scan_iter(keys.INFLIGHT_PREFIX + "*") for payload in server.hvals(key)]
    members = [*server.zrange(keys.DELAYED, 0, -1), *server.zrange(keys.large(LIST), 0, -1)]
    aside = [member.partition(b"\0")[2] for member in [*members, *server.hvals(keys.DEAD_MESSAGES)]]
    return Counter(number_of(payload) for payload in [*waiting(server), *held, *aside])


def take(node: ScriptedNode, step: str, rng: random.Random) -> list[int]:
    """Do one step as a node does; return the numbers of the messages that it has settled for good."""
    if step == "claim":
        for mark in ("ok", "solo"):
            node.claim(rng.randint(1, 4), mark=mark)
    elif step == "claim_large":
        for mark in ("ok", "solo"):
            node.claim_large(rng.randint(1, 9), mark=mark)
    elif step == "set_aside":
        charged_bytes = rng.randint(1, 9)
        run(node.server, Script.SET_ASIDE, [LIST, keys.large(LIST)], "", "ok", charged_bytes, 0)
    elif step in {"done", "failed", "requeue", "park"}:
        return settle_one(node, step, rng)
    else:
        happen(node, step)
    return []


def happen(node: ScriptedNode, step: str) -> None:
    """Let something happen to a node that concerns all it holds, or to a dead job."""
    match step:
        case "renew":
            node.renew(create=True)
        case "expire":
            node.expire()
        case "release":
            node.release()
        case "retry":
            for dead in islice(dead_list.jobs(node.server), 1):
                dead_list.put_back(node.server, dead)


def settle_one(node: ScriptedNode, action: str, rng: random.Random) -> list[int]:
    """Settle a message that this node has claimed last, or ever: also one that was taken from it since."""
    if not node.held:
        return []
    tag, payload = rng.choice(rng.choice([node.held, node.held[-2:]]))
    entry = {"tag": tag, "action": action, "attempts": rng.randint(0, 1), "delay_ms": 0}
    if action == "failed":
        entry |= {"report": '{"kind":"noop"}', "keeps_message": True}
    settled, _ = node.settle(entry)
    return [number_of(payload)] * settled if action == "done" else []


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), min_size=50, max_size=90),
    seed=st.integers(0, 2**32),
)
def test_every_message_is_settled_or_in_exactly_one_place(
    server: "redis.Redis", steps: list[Step], seed: int
) -> None:
    """Three nodes claim, settle late, freeze, end and begin again; after each step the sum is right."""
    server.flushdb()
    rng = random.Random(seed)
    nodes = [leased_node(server, str(number)) for number in range(3)]
    put(server, *[message(number) for number in range(MESSAGES)])
    settled: Counter[int] = Counter()
    for number, step in steps:
        settled.update(take(nodes[number], step, rng))

        assert everywhere(server) + settled == Counter(range(MESSAGES))
        assert count_jobs(server, [LIST]).total == MESSAGES


@pytest.mark.parametrize("seed", range(4))
def test_many_nodes_at_once_settle_each_job_once_and_continue_once(
    server: "redis.Redis", broker_url: str, seed: int
) -> None:
    """Four nodes settle a window concurrently: the successor of the plan is pushed exactly once."""
    items = [str(number) for number in range(120)]
    run(
        server,
        Script.START_PROJECT,
        [keys.project("p")],
        json.dumps(job("import:0", stage="plan")),
        json.dumps(["plan"]),
    )
    planner = leased_node(server, "planner")
    (held,) = planner.claim() or []
    planner.settle(
        {"tag": held[0], "action": "done", "project": "p", "stage": "plan", "item": "import:0"}
        | {"pushes": [job(item) for item in items]}
        | {"continuation": json.dumps({**job("next", stage="plan"), "list": "plan"}), "continue_at": 7}
    )
    threads = [Thread(target=work, args=(broker_url, number, seed)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    counts = server.hmget(keys.project("p"), ["match:done", "verify:done", "outstanding", "plan:planned"])
    assert [int(count or 0) for count in counts] == [120, 120, 1, 2]
    assert server.llen("plan") == 1
    assert everywhere(server) == Counter()


def work(broker_url: str, number: int, seed: int) -> None:
    """Work as one node until nothing is left: mostly settle, sometimes give back, freeze or restart."""
    rng = random.Random(f"{seed}:{number}")
    client = plain_client(broker_url.replace("redis+socket://", "unix://", 1))
    node = leased_node(client, str(number))
    idle_looks = 0
    while idle_looks < 200:
        claimed = node.claim(rng.randint(1, 5)) or []
        claimed += node.claim(mark="solo") or []
        idle_looks = 0 if claimed else idle_looks + 1
        entries = [entry_of(tag, payload, rng) for tag, payload in claimed]
        if rng.random() < 0.1:
            node.expire()
        node.settle(*entries)
        node.renew(create=True)
    node.release()
    client.close()


def entry_of(tag: str, payload: bytes, rng: random.Random) -> dict[str, object]:
    """Return how one job ends: a match pushes its verification."""
    headers = json.loads(payload)["headers"]
    entry: dict[str, object] = {
        "tag": tag,
        "project": "p",
        "stage": headers["stage"],
        "item": headers["item"],
    }
    if rng.random() < 0.1:
        return {**entry, "action": "requeue", "attempts": rng.randint(0, 1)}
    pushes = [job(headers["item"], stage="verify")] if headers["stage"] == "match" else []
    return {**entry, "action": "done", "pushes": pushes}
