"""Workers restarted one after the other, by SIGTERM, cost no job anything."""

import json
import signal
from typing import Any

from tests.integration.conftest import Cluster, wait_until

SHORT_JOBS, LONG_JOBS = 200, 4
NODES = ("a", "b", "c")


def send_all(cluster: Cluster) -> None:
    """Send short jobs, and a few long ones among them."""
    with cluster.stock as client:
        for number in range(SHORT_JOBS + LONG_JOBS):
            is_long = number % (SHORT_JOBS // LONG_JOBS) == 0 and number < SHORT_JOBS
            told = {"number": number, "log": cluster.run_log, "sleep_seconds": 2.0 if is_long else 0.02}
            client.send_task("noop", queue="noop", kwargs=told)


def histories(cluster: Cluster) -> list[dict[str, Any]]:
    """Return what is counted against each message that waits."""
    messages: Any = cluster.server.lrange("noop", 0, -1)
    return [history for message in messages if (history := json.loads(message).get("tiepoint", {}))]


def test_each_worker_restarted_in_turn_loses_and_repeats_nothing(cluster: Cluster) -> None:
    """Every job runs once, and no attempt and no lost node is counted anywhere."""
    workers = {name: cluster.start_worker(name, cpus=1) for name in NODES}
    send_all(cluster)
    seen: list[list[dict[str, Any]]] = []
    for name in NODES:
        wait_until(lambda: len(cluster.runs()) > len(seen) * 30 + 10, "jobs run")
        assert workers[name].stop(signal.SIGTERM) == 0
        seen.append(histories(cluster))
        workers[name] = cluster.start_worker(name, cpus=1)
    wait_until(lambda: not cluster.server.llen("noop") and not cluster.inflight(), "all are done")

    assert sorted(number for number, _, _ in cluster.runs()) == list(range(SHORT_JOBS + LONG_JOBS))
    assert seen == [[], [], []]
    assert cluster.dead() == []
