"""The script that settles: once, atomically, with everything that follows from it."""

import json
from contextlib import closing
from typing import Any

import pytest
import redis

from governor.model import Estimate
from tests.integration.scripted_node import (
    LIST,
    ScriptedNode,
    job,
    leased_node,
    message,
    now_ms,
    numbers,
    put,
    spliced,
    waiting,
)
from worker import keys
from worker.project_queue import ProjectQueue
from worker.redis_scripts import Script, run

PROJECT = keys.project("p")
STAGES = json.dumps(["plan", "import", "features", "match", "verify"])


def start(server: "redis.Redis", *jobs: dict[str, str]) -> None:
    """Start project p with a plan whose settling pushes these jobs; they wait in the list then."""
    run(
        server,
        Script.START_PROJECT,
        [PROJECT],
        json.dumps(job("import:0", stage="plan")),
        STAGES,
        "until",
        "model",
    )
    node = leased_node(server, "planner")
    (held,) = node.claim() or []
    node.settle(done(held[0], "import:0", stage="plan", pushes=list(jobs)))


def done(tag: str, item: str, *, stage: str = "match", action: str = "done", **more: Any) -> dict[str, Any]:
    """Return the settlement of an item of project p."""
    return {"tag": tag, "action": action, "project": "p", "stage": stage, "item": item, "pushes": [], **more}


def claim_items(node: ScriptedNode, most: int) -> dict[str, str]:
    """Claim jobs of a project; return their tags by item."""
    claimed = node.claim(most) or []
    return {json.loads(payload)["headers"]["item"]: tag for tag, payload in claimed}


def counters(server: "redis.Redis", *names: str) -> list[int]:
    """Return counters of project p."""
    return [int(value or 0) for value in server.hmget(PROJECT, list(names))]


def test_a_settled_message_is_gone_and_counted_once(server: "redis.Redis") -> None:
    """Removing the item from its stage is the once-token of every counter."""
    start(server, job("a"), job("b"))
    node = leased_node(server)
    tags = claim_items(node, 2)
    planned = counters(server, "match:planned", "outstanding")

    assert node.settle(done(tags["a"], "a"), done(tags["b"], "b", action="failed")) == (2, 0)
    assert planned == [2, 2]
    assert counters(server, "match:done", "match:failed", "outstanding") == [1, 1, 0]
    assert server.hlen(node.inflight) == 0
    assert server.exists(keys.stage_todo("p", "match")) == 0


def test_a_second_message_of_an_item_counts_nothing(server: "redis.Redis") -> None:
    """A message that was sent twice is run twice and counted once."""
    start(server, job("a"))
    put(server, job("a")["payload"].encode())
    node = leased_node(server)
    claimed = node.claim(2) or []

    assert node.settle(*[done(tag, "a") for tag, _ in claimed]) == (2, 0)
    assert counters(server, "match:done", "outstanding") == [1, 0]


def test_a_stale_settlement_is_refused_and_changes_nothing(server: "redis.Redis") -> None:
    """The zombie's tag is gone: its message was given to another node, whose result counts."""
    start(server, job("a"))
    zombie, heir = leased_node(server, "zombie"), leased_node(server, "heir")
    tags = claim_items(zombie, 1)
    zombie.expire()
    heir.renew()

    refused = zombie.settle(done(tags["a"], "a", pushes=[job("late")], report="late"))

    assert refused == (0, 1)
    assert counters(server, "match:done", "outstanding") == [0, 1]
    assert server.llen(keys.DEAD) == 0
    assert heir.settle(done(claim_items(heir, 1)["a"], "a")) == (1, 0)


def test_a_settlement_that_is_sent_again_is_refused(server: "redis.Redis") -> None:
    """A reply that was lost costs nothing: the second try finds no tag."""
    start(server, job("a"))
    node = leased_node(server)
    entry = done(claim_items(node, 1)["a"], "a", pushes=[job("next")])

    assert [node.settle(entry), node.settle(entry)] == [(1, 0), (0, 1)]
    assert counters(server, "match:done", "match:planned") == [1, 2]
    assert server.llen(LIST) == 1


def test_a_follow_up_that_is_outstanding_is_not_pushed_again(server: "redis.Redis") -> None:
    """Two ways to the same next job make one message."""
    start(server, job("a"), job("b"))
    node = leased_node(server)
    tags = claim_items(node, 2)
    verify = job("a-b", stage="verify")

    node.settle(done(tags["a"], "a", pushes=[verify]), done(tags["b"], "b", pushes=[verify]))

    assert server.llen(LIST) == 1
    assert counters(server, "verify:planned", "outstanding") == [1, 1]


@pytest.mark.parametrize(("continue_at", "settled_first"), [(0, 3), (1, 2), (2, 1)])
def test_the_continuation_is_pushed_at_its_low_water_mark_and_not_before(
    server: "redis.Redis", continue_at: int, settled_first: int
) -> None:
    """With three jobs planned it waits until no more than ``continue_at`` are left."""
    plan_with_continuation(server, "abc", continue_at)
    node = leased_node(server)
    tags = claim_items(node, 3)

    before = []
    for item in "abc"[:settled_first]:
        before.append(server.llen(LIST))
        node.settle(done(tags[item], item))

    assert before == [0] * settled_first
    assert json.loads(waiting(server)[0])["headers"]["item"] == "match:3"
    assert server.hget(PROJECT, "next_expand") is None


def plan_with_continuation(
    server: "redis.Redis", items: str, continue_at: int, *, stage: str = "match", each: int = 1
) -> None:
    """Start project p with these items planned and a successor of the plan waiting."""
    run(server, Script.START_PROJECT, [PROJECT], json.dumps(job("import:0", stage="plan")), STAGES)
    node = leased_node(server, "planner")
    (held,) = node.claim() or []
    successor = json.dumps(job("match:3", stage="plan"))
    node.settle(
        done(
            held[0],
            "import:0",
            stage="plan",
            pushes=[job(item, stage=stage) for item in items],
            continuation=successor,
            continue_at=continue_at,
            progress={"phase": "matching", "pairs:each": str(each)},
        )
    )


@pytest.mark.parametrize(("nodes", "settled_first"), [(2, 4), (4, 4), (6, 3), (8, 2)])
def test_more_than_four_nodes_raise_the_low_water_mark(
    server: "redis.Redis", nodes: int, settled_first: int
) -> None:
    """A mark of two, six jobs: up to four nodes go on at two left, six at three, eight at four."""
    plan_with_continuation(server, "abcdef", 2)
    node, *_ = [leased_node(server, f"node{number}") for number in range(nodes - 1)]
    tags = claim_items(node, 6)

    before = []
    for item in "abcdef"[:settled_first]:
        before.append(server.llen(LIST))
        node.settle(done(tags[item], item))

    assert before == [0] * settled_first
    assert server.llen(LIST) == 1


def test_a_barrier_stays_one_for_any_number_of_nodes(server: "redis.Redis") -> None:
    """Nothing is pushed before the last job is settled."""
    plan_with_continuation(server, "ab", 0)
    node, *_ = [leased_node(server, f"node{number}") for number in range(64)]
    tags = claim_items(node, 2)
    node.settle(done(tags["a"], "a"))
    before = server.llen(LIST)
    node.settle(done(tags["b"], "b"))

    assert (before, server.llen(LIST)) == (0, 1)


@pytest.mark.parametrize(("each", "waiting_before"), [(4096, 3), (4097, 2)])
def test_a_plan_waits_while_its_pairs_jobs_promise_too_much(
    server: "redis.Redis", each: int, waiting_before: int
) -> None:
    """Two of them may bring 8192 jobs; where they may bring more, one of them is done first."""
    plan_with_continuation(server, "ab", 128, stage="pairs", each=each)
    before = server.llen(LIST)
    node = leased_node(server)
    ((tag, _),) = node.claim() or []
    node.settle(done(tag, "a", stage="pairs"))

    assert before == waiting_before
    assert server.llen(LIST) == 2


def test_what_jobs_of_other_stages_bring_is_not_awaited(server: "redis.Redis") -> None:
    """Only the stage `pairs` makes many jobs of one."""
    plan_with_continuation(server, "ab", 128, each=10_000)

    assert server.llen(LIST) == 3


def test_the_continuation_is_pushed_once(server: "redis.Redis") -> None:
    """Below the mark nothing fires a second time."""
    plan_with_continuation(server, "abc", 2)
    node = leased_node(server)
    tags = claim_items(node, 3)

    node.settle(*[done(tags[item], item) for item in "abc"])

    assert [json.loads(text)["headers"]["item"] for text in waiting(server)] == ["match:3"]
    assert counters(server, "plan:planned", "outstanding") == [2, 1]


def test_a_continuation_with_nothing_outstanding_is_pushed_at_once(server: "redis.Redis") -> None:
    """A window whose jobs were all there already does not stop the project."""
    plan_with_continuation(server, "", 0)

    assert [json.loads(text)["headers"]["item"] for text in waiting(server)] == ["match:3"]
    assert server.hget(PROJECT, "phase") == b"matching"


def test_what_a_job_pushes_counts_before_the_barrier_is_tested(server: "redis.Redis") -> None:
    """The last match job of a window pushes its verification: the phase is not over."""
    plan_with_continuation(server, "a", 0)
    node = leased_node(server)
    tags = claim_items(node, 1)
    node.settle(done(tags["a"], "a", pushes=[job("a", stage="verify")]))

    verify = waiting(server)
    tag = claim_items(node, 1)["a"]
    node.settle(done(tag, "a", stage="verify"))

    assert [json.loads(text)["headers"]["stage"] for text in verify] == ["verify"]
    assert [json.loads(text)["headers"]["stage"] for text in waiting(server)] == ["plan"]


def test_a_failed_plan_fails_the_project_with_its_report(server: "redis.Redis") -> None:
    """Without a plan nothing would ever follow: whoever watches must be told."""
    run(server, Script.START_PROJECT, [PROJECT], json.dumps(job("import:0", stage="plan")), STAGES)
    node = leased_node(server)
    tag = claim_items(node, 1)["import:0"]
    node.settle(done(tag, "import:0", stage="plan", action="failed", report="the disk is full"))

    assert server.hmget(PROJECT, ["state", "failure"]) == [b"failed", b"the disk is full"]


def test_a_running_project_is_not_started_twice(server: "redis.Redis") -> None:
    """The second client only watches."""
    first = json.dumps(job("import:0", stage="plan"))
    started = [
        run(server, Script.START_PROJECT, [PROJECT], first, STAGES, "until", "model") for _ in range(2)
    ]

    assert started == [1, 0]
    assert server.llen(LIST) == 1


def test_a_project_that_was_started_again_looks_once_more_before_it_is_done(server: "redis.Redis") -> None:
    """What was asked for meanwhile, failed items again or a later phase, may be behind its last look."""
    over = {"state": "done", "phase": "done"}
    start(server, job("1"), job("2"))
    again = json.dumps(job("import:0", stage="plan"))
    run(server, Script.START_PROJECT, [PROJECT], again, STAGES, "until", "model")
    node = leased_node(server)
    tags = claim_items(node, 2)
    node.settle(done(tags["2"], "2"))
    assert server.llen(LIST) == 0
    node.settle(done(tags["1"], "1", progress=over))

    assert server.hmget(PROJECT, "state", "outstanding") == [b"running", b"1"]
    node.settle(done(claim_items(node, 1)["import:0"], "import:0", stage="plan", progress=over))
    assert server.hmget(PROJECT, "state", "outstanding") == [b"done", b"0"]
    assert waiting(server) == []


def test_a_finished_project_starts_afresh(server: "redis.Redis") -> None:
    """Counters of the last run are gone, and its end does not stop the new one."""
    first = json.dumps(job("import:0", stage="plan"))
    run(server, Script.START_PROJECT, [PROJECT], first, STAGES)
    node = leased_node(server)
    node.settle(done(claim_items(node, 1)["import:0"], "import:0", stage="plan", progress={"state": "done"}))

    assert run(server, Script.START_PROJECT, [PROJECT], first, STAGES) == 1
    assert counters(server, "plan:planned", "plan:done", "outstanding") == [1, 0, 1]
    assert server.llen(LIST) == 1


def test_a_job_that_is_given_back_is_next_in_line(server: "redis.Redis") -> None:
    """It was the oldest; no attempt is counted unless the node says so."""
    put(server, message(0), message(1))
    node = leased_node(server)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "requeue", "attempts": 0})

    assert numbers(server) == [0, 1]
    assert waiting(server)[0] == spliced(message(0))


def test_a_retry_of_a_project_is_counted(server: "redis.Redis") -> None:
    """An attempt is a retry, going back untouched is none."""
    start(server, job("a"), job("b"))
    node = leased_node(server)
    tags = claim_items(node, 2)
    node.settle(
        done(tags["a"], "a", action="requeue", attempts=1), done(tags["b"], "b", action="requeue", attempts=0)
    )

    assert counters(server, "retried", "outstanding") == [1, 2]


def test_a_parked_job_comes_back_when_it_is_due(server: "redis.Redis") -> None:
    """Until then no list shows it, and the renewal tells how long it is."""
    put(server, message(0))
    node = leased_node(server)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "park", "attempts": 1, "delay_ms": 50_000})

    _, _, due, next_due_ms, _ = node.renew()
    assert (due, server.llen(LIST)) == (0, 0)
    assert 49_000 < next_due_ms <= 50_000
    entry: Any = server.zrange(keys.DELAYED, 0, -1)[0]
    server.zadd(keys.DELAYED, {entry: now_ms(server)})
    assert node.renew()[2:4] == (1, -1)
    assert waiting(server) == [spliced(message(0), attempts=1)]


def test_the_list_of_dead_jobs_is_bounded_and_keeps_the_newest(server: "redis.Redis") -> None:
    """A million failures do not fill the memory."""
    node = leased_node(server)
    put(server, *[message(number) for number in range(4)])
    for number, (tag, _) in enumerate(node.claim(4) or []):
        report = json.dumps({"number": number})
        node.settle({"tag": tag, "action": "failed", "report": report}, most_dead=3)

    reports: list[Any] = server.lrange(keys.DEAD, 0, -1)
    assert [json.loads(report)["number"] for report in reports] == [3, 2, 1]
    assert [json.loads(report)["serial"] for report in reports] == [4, 3, 2]
    assert server.hmget(keys.TOTALS, "failed", "forgotten") == [b"4", b"1"]


def test_a_job_without_a_project_is_only_removed(server: "redis.Redis") -> None:
    """A stock client's job belongs to none."""
    put(server, message(0))
    node = leased_node(server)
    (held,) = node.claim() or []

    assert node.settle({"tag": held[0], "action": "done", "pushes": []}) == (1, 0)
    assert server.keys(keys.PROJECT_PREFIX + "*") == []


def batch(reserved_bytes: int, peak_bytes: int) -> dict[str, Any]:
    """Return the entry of a measured batch."""
    ratio_permille = peak_bytes * 1000 // reserved_bytes
    measured = {"reserved_bytes": reserved_bytes, "peak_bytes": peak_bytes, "ratio_permille": ratio_permille}
    return {"action": "batch", "project": "p", "kind": "noop", **measured}


def test_the_worst_batch_of_a_kind_is_kept(server: "redis.Redis", broker_url: str) -> None:
    """Worst is the nearest to its reservation; the project's peak is the greatest of all."""
    start(server)
    node = leased_node(server)
    node.settle(batch(100, 20), batch(1000, 50), batch(50, 40), batch(100, 79))

    client = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))
    state = client.state("p")
    client.close()
    worst = {"batches": 4, "reserved_bytes": 50, "peak_bytes": 40, "worst_ratio": 0.8}
    assert state.kinds == {"noop": {**worst, "items": 0, "busy_seconds": 0.0}}
    assert state.peak_bytes == 79


def test_the_time_of_work_is_added_up(server: "redis.Redis", redis_url: str) -> None:
    """Not that of a batch that found everything done."""
    start(server)
    times = (
        {"items": 8, "busy_us": 1_500_000},
        {"items": 0, "busy_us": 9_000_000},
        {"items": 1, "busy_us": 5},
    )
    leased_node(server).settle(*({**batch(100, 20), **time} for time in times))

    with closing(ProjectQueue(redis_url)) as client:
        noop = client.state("p").kinds["noop"]
    assert (noop["items"], noop["busy_seconds"]) == (9, 1.500005)


@pytest.mark.parametrize("reserved_bytes", [10**9, 5 * 10**9, 10**12, 2**40, 2**53])
def test_round_amounts_are_read_back_as_they_were(
    server: "redis.Redis", broker_url: str, reserved_bytes: int
) -> None:
    """A script hands them over as doubles; none comes back as 5e+9."""
    start(server)
    leased_node(server).settle(batch(reserved_bytes, reserved_bytes))

    client = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))
    state = client.state("p")
    client.close()
    assert (state.kinds["noop"]["reserved_bytes"], state.peak_bytes) == (reserved_bytes, reserved_bytes)


def test_how_an_attempt_ended_travels_with_the_message_and_is_replaced_by_the_next(
    server: "redis.Redis",
) -> None:
    """Its node is not asked again: the message itself tells why it needs so much."""
    put(server, message(0))
    node = leased_node(server)
    requeue: dict[str, Any] = {"action": "requeue", "attempts": 1}
    told: list[dict[str, Any]] = []
    for last_end in ('{"node":"a"}', '{"node":"b"}', None):
        mark = "solo" if told else "ok"
        (held,) = node.claim(mark=mark) or []
        node.settle({**requeue, "tag": held[0]} | ({"last_end": last_end} if last_end else {}))
        told.append(json.loads(waiting(server)[0])["tiepoint"])

    ends = [{"node": "a"}, {"node": "b"}, {"node": "b"}]
    assert told == [
        {"attempts": attempts, "lost": 0, "estimate": {}, "last_end": end}
        for attempts, end in enumerate(ends, start=1)
    ]
    assert waiting(server)[0].endswith(message(0)[1:])


def test_all_that_a_message_remembers_travels_together(server: "redis.Redis") -> None:
    """Whatever is counted next, nothing of it is lost, and the message behind it is as it was sent."""
    need = Estimate(memory_fixed_bytes=2**40).to_header()
    put(server, message(0))
    node = leased_node(server)
    for new in (
        {"attempts": 1, "last_end": '{"node":"a"}'},
        {"lost": 1, "lost_on": '"b"'},
        {"estimate": need},
    ):
        (held,) = node.claim(mark="solo" if "last_end" not in new else "ok") or []
        node.settle({"tag": held[0], "action": "requeue", **new})

    assert json.loads(waiting(server)[0])["tiepoint"] == {
        "attempts": 1,
        "lost": 1,
        "estimate": json.loads(need),
        "last_end": {"node": "a"},
        "lost_on": "b",
    }
    assert waiting(server)[0].endswith(message(0)[1:])


def test_a_message_with_spaces_in_front_stays_a_message(server: "redis.Redis") -> None:
    """It is JSON all the same; what is spliced in takes the place of its brace."""
    put(server, b" \n" + message(0))
    node = leased_node(server)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "requeue", "attempts": 1})

    assert waiting(server) == [spliced(message(0), attempts=1)]


def test_a_history_that_is_not_ours_is_left_in_the_text_as_it_was_sent(server: "redis.Redis") -> None:
    """Whoever sends such a message gets ours in front of it, not a half of it."""
    foreign = b'{"tiepoint":{"attempts":7,"lost":0,"estimate":{},"more":1},' + message(0)[1:]
    put(server, foreign)
    node = leased_node(server)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "requeue", "attempts": 1})

    assert waiting(server) == [spliced(foreign, attempts=1)]


def test_a_needed_estimate_travels_with_the_message(server: "redis.Redis") -> None:
    """What the job has found to need is what the next claim must have reserved."""
    need = Estimate(memory_fixed_bytes=2**40).to_header()
    put(server, message(0))
    node = leased_node(server)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "requeue", "attempts": 0, "estimate": need})

    assert node.claim() == []
    assert len(node.claim(estimate=need, mark="moved") or []) == 1


def test_what_a_failed_run_left_in_the_queues_still_counts(server: "redis.Redis") -> None:
    """Started again, a project does not open its barriers while old jobs are outstanding."""
    start(server, job("a"), job("b"))
    server.hset(PROJECT, "state", "failed")
    run(server, Script.START_PROJECT, [PROJECT], json.dumps(job("import:0", stage="plan")), STAGES)

    assert server.hget(PROJECT, "outstanding") == b"3"
    assert server.hget(PROJECT, "state") == b"running"
