"""A job that no live node has room for is told as BLOCKED within 10 s, and runs when a bigger one joins."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from governor.model import Estimate
from tasks.parameters import ProjectParameters
from tasks.store import Source, Store
from tests.integration.conftest import REPOSITORY, Cluster, wait_until
from worker import keys
from worker.client import Client
from worker.explanation import Explanation

GIB = 1024**3
TOLD_WITHIN_SECONDS = 10.0
KINDS = ["tests.integration.noop_kinds"]
SENTENCE = "BLOCKED: noop of big.jpg: needs 3.00 GiB, the best node ("
OFFER = ") offers 0.50 GiB"


def start_project(cluster: Cluster) -> None:
    """Let a project called frog run, of which the queue's planner knows nothing."""
    source = Source(name="big.jpg", path="/photos/big.jpg")
    Store(cluster.folder / "store").project("frog").create(ProjectParameters(), [source], link=True)
    cluster.server.hset(keys.project("frog"), mapping={"state": "running", "outstanding": "1"})


def command(cluster: Cluster, *arguments: str) -> "subprocess.Popen[str]":
    """Start a command of a client."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "TIEPOINT_BROKER_URL": cluster.broker_url,
        "TIEPOINT_STORE": str(cluster.folder / "store"),
        "TIEPOINT_KIND_MODULES": json.dumps(KINDS),
    }
    line = [sys.executable, "-P", "-m", "worker.cli", *arguments]
    return subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cluster.folder
    )


def told(cluster: Cluster, *arguments: str) -> Any:
    """Return the JSON object that a command prints."""
    return json.loads(command(cluster, *arguments, "--json").communicate()[0])


def lines_of(watching: "subprocess.Popen[str]", *beginnings: str) -> list[str]:
    """Read what a command says until lines with these beginnings have come, one after the other."""
    found: list[str] = []
    for line in watching.stderr or ():
        if line.startswith(beginnings[len(found)]):
            found.append(line.rstrip())
        if len(found) == len(beginnings):
            break
    return found


def send(cluster: Cluster, number: int, **headers: str) -> str:
    """Send a job that notes its number when it runs."""
    return cluster.send("noop", headers=headers, kwargs={"number": number, "log": cluster.run_log})


def test_a_job_too_large_for_all_nodes_is_blocked_until_a_bigger_one_joins(cluster: Cluster) -> None:
    """Other jobs go on meanwhile; `watch`, `status` and `explain` say what it needs and what there is."""
    start_project(cluster)
    for name in ("one", "two"):
        cluster.start_worker(name, memory_bytes=GIB)
    watching = command(cluster, "watch", "frog")
    estimate = Estimate(memory_fixed_bytes=3 * GIB).to_header()
    big = send(cluster, 1, estimate=estimate, project="frog", name="big.jpg")
    sent_at = time.monotonic()
    (watched,) = lines_of(watching, "BLOCKED")
    seconds = time.monotonic() - sent_at
    status, explained = told(cluster, "status"), told(cluster, "explain", "frog")
    with Client(cluster.broker_url, cluster.folder / "store", kind_modules=KINDS) as client:
        explained_job = client.explain(big)
    send(cluster, 2)
    wait_until(lambda: [number for number, _, _ in cluster.runs()] == [2], "a small job goes on")
    cluster.start_worker("big", memory_bytes=5 * GIB)
    wait_until(lambda: len(cluster.runs()) == 2, "the bigger node runs it")
    over = lines_of(watching, "no longer blocked: noop")
    watching.send_signal(signal.SIGINT)
    watching.communicate()

    assert seconds < TOLD_WITHIN_SECONDS
    assert watched.startswith(SENTENCE)
    assert watched.endswith(OFFER)
    (row,) = status["projects"]
    assert (row["state"], row["blocked"][0]["needed"]) == ("running", 3 * GIB)
    assert any(sentence.startswith(SENTENCE) for sentence in explained["sentences"])
    check_job(explained_job)
    assert over


def check_job(explained: Explanation) -> None:
    """Check that the job says so, too, and what the nodes decided for its kind."""
    assert explained.state == "blocked"
    assert any(one["reason"] == "IMPOSSIBLE_ON_NODE" for one in explained.facts["last_decisions"])
    assert any("this node offers at most 0.50 GiB" in sentence for sentence in explained.sentences)
