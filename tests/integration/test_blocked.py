"""A job that no live node has room for is told as BLOCKED within 10 s, and runs when a bigger one joins."""

import time

from governor.model import Estimate
from tests.integration.conftest import Cluster, wait_until
from worker.blocked import Blocked
from worker.client import Client
from worker.explanation import Explanation

GIB = 1024**3
TOLD_WITHIN_SECONDS = 10.0
KINDS = ["tests.integration.noop_kinds"]


def a_client(cluster: Cluster) -> Client:
    """Return a client that knows the no-op kinds."""
    return Client(cluster.broker_url, cluster.folder / "store", kind_modules=KINDS)


def test_a_job_too_large_for_all_nodes_is_blocked_until_a_bigger_one_joins(cluster: Cluster) -> None:
    """Other jobs go on meanwhile; the sentence says what it needs and what the best node offers."""
    for name in ("one", "two"):
        cluster.start_worker(name, memory_bytes=GIB)
    (cluster.folder / "store").mkdir(exist_ok=True)
    headers = {
        "estimate": Estimate(memory_fixed_bytes=3 * GIB).to_header(),
        "project": "frog",
        "name": "big.jpg",
    }
    big = cluster.send("noop", headers=headers, kwargs={"number": 1, "log": cluster.run_log})
    sent_at = time.monotonic()
    with a_client(cluster) as client:
        wait_until(lambda: client.blocked("frog"), "it is blocked")
        seconds = time.monotonic() - sent_at
        (blocked,), explained = client.blocked("frog"), client.explain(big)
        cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
        wait_until(lambda: [number for number, _, _ in cluster.runs()] == [2], "a small job goes on")
        cluster.start_worker("big", memory_bytes=5 * GIB)
        wait_until(lambda: len(cluster.runs()) == 2, "the bigger node runs it")
        wait_until(lambda: not client.blocked(), "nothing is blocked any more")

    assert seconds < TOLD_WITHIN_SECONDS
    check_sentence(blocked)
    check_explanation(explained)


def check_sentence(blocked: Blocked) -> None:
    """Check what is told of the blocked job."""
    line = blocked.sentence()

    assert line.startswith("BLOCKED: noop of big.jpg: needs 3.00 GiB, the best node (")
    assert line.endswith(") offers 0.50 GiB")


def check_explanation(explained: Explanation) -> None:
    """Check that the job says so, too, and what the nodes decided for its kind."""
    assert explained.state == "blocked"
    decided = explained.facts["last_decisions"]
    assert [one["reason"] for one in decided if one["reason"] == "IMPOSSIBLE_ON_NODE"]
    assert any("this node offers at most 0.50 GiB" in sentence for sentence in explained.sentences)
