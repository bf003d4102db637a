"""`tiepoint node` tells of each node what it has and waits for, and what one decided, while it works."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.conftest import REPOSITORY, Cluster, wait_until
from worker import keys

GIB = 1024**3


def node_command(cluster: Cluster, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run ``tiepoint node`` to its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIEPOINT_")}
    environment |= {"PYTHONPATH": str(REPOSITORY), "TIEPOINT_LOCK_FOLDER": str(cluster.folder / "lock")}
    command = [sys.executable, "-P", "-m", "worker.cli", "node", *arguments]
    return subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, timeout=60, check=False
    )


def told(cluster: Cluster, *arguments: str) -> Any:
    """Return the JSON object of the command."""
    done = node_command(cluster, *arguments, "--broker", cluster.broker_url, "--json")
    if done.returncode:
        pytest.fail(done.stderr)
    return json.loads(done.stdout)


def test_a_busy_node_tells_its_budgets_and_last_decisions(cluster: Cluster) -> None:
    """With the readings of the machine that each was made on; a frozen one is told as not answering."""
    one = cluster.start_worker("one", memory_bytes=2 * GIB, cpus=1)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 60})
    wait_until(lambda: cluster.reserved_bytes("one"), "the heartbeat tells of the running job")
    (listed,) = told(cluster)["nodes"]
    named = told(cluster, "one")
    table = node_command(cluster, "--broker", cluster.broker_url).stdout
    unknown = node_command(cluster, "two", "--broker", cluster.broker_url)
    one.process.send_signal(signal.SIGSTOP)
    # Its lease would end first.
    leases: Any = cluster.server.zrange(keys.LEASES, 0, -1)
    cluster.server.zadd(keys.LEASES, dict.fromkeys(leases, 10**15))
    cluster.server.persist(keys.node("one"))
    silent = told(cluster, "one")

    assert listed["active_reservations"] == 1
    assert (listed["free_cpu_threads"], listed["limits"]["partition_memory_bytes"]) == (0, 2 * GIB)
    assert listed["offers_memory_bytes"] == 2 * GIB - GIB // 2
    assert named["problem"] is None
    (decision,) = [one for one in named["decisions"] if one["verdict"] == "START"]
    assert (decision["kind"], decision["needed_memory_bytes"]) == ("noop", 5 * 1024**2)
    assert decision["readings"]["memory_available_bytes"] > 0
    assert "one" in table
    assert (unknown.returncode, "there is no live node two; alive are: one" in unknown.stderr) == (2, True)
    assert silent["decisions"] is None
    assert "one has not answered within 3 s" in silent["problem"]


def test_without_a_queue_the_command_tells_what_a_worker_would_see_here(cluster: Cluster) -> None:
    """The machine, its limits, both profiles, and who holds it."""
    lock = str(cluster.folder / "lock")
    cluster.start_worker("one", memory_bytes=2 * GIB, cpus=1, lock_folder=lock)
    here = json.loads(node_command(cluster, "--json", TIEPOINT_MEMORY_BYTES=str(3 * GIB)).stdout)
    table = node_command(cluster).stdout

    assert here["machine"]["memory_total_bytes"] == 3 * GIB
    assert here["profiles"]["dedicated"]["offers"]["memory_bytes"] == 3 * GIB - GIB // 2
    assert here["profiles"]["interactive"]["problems"] == []
    assert here["workers"] == [{"name": "one", "memory_bytes": 2 * GIB, "cpus": 1}]
    assert "worker one holds 2.00 GiB, 1 CPUs" in table
