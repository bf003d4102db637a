"""Live jobs come first, and those that are of no use any more are dropped; nothing is lost on the way."""

import json
import time
from itertools import count
from typing import Any

from tests.integration.conftest import Cluster, wait_until
from tests.integration.test_planning import planning_of
from worker import keys
from worker.queue_counts import count_jobs


def send(cluster: Cluster, number: int, *, priority: int = 6, **headers: Any) -> None:
    """Send a job with a contract, as any Celery client would."""
    told = {"number": number, "log": cluster.run_log, "sleep_seconds": 0.0 if number else 2.0}
    with cluster.stock as client:
        client.send_task("noop", kwargs=told, queue="noop", priority=priority, headers=headers)


def now_ms() -> int:
    """Return the time as a camera tells it."""
    return time.time_ns() // 1_000_000


def test_live_jobs_overtake_and_old_ones_are_dropped(cluster: Cluster) -> None:
    """While one job holds the node; then the order, and the account."""
    cluster.start_worker(cpus=1)
    send(cluster, 0)
    wait_until(cluster.runs, "the node is busy")
    send(cluster, 1)
    live: dict[str, Any] = {"class": "protected", "max_age_ms": 60_000}
    for number in (2, 3, 4):
        send(cluster, number, priority=0, supersede_key="camera1", captured_at_ms=now_ms(), **live)
    send(cluster, 5, priority=0, captured_at_ms=now_ms() - 61_000, **live)
    wait_until(lambda: len(cluster.runs()) == 3 and not cluster.inflight(), "all are settled")
    counts = count_jobs(cluster.server, ["noop"])

    assert [number for number, _, _ in cluster.runs()] == [0, 4, 1]
    assert (counts.done, counts.dropped, counts.dead) == (3, 3, 0)
    assert [cluster.server.llen(name) for name in keys.queue_lists("noop")] == [0, 0, 0, 0]


def test_a_contract_that_makes_no_sense_costs_its_job(cluster: Cluster) -> None:
    """The report names the header."""
    cluster.start_worker(cpus=1)
    send(cluster, 1, deadline_ms="soon")
    send(cluster, 2)
    (report,) = wait_until(cluster.dead, "it is told")
    wait_until(lambda: len(cluster.runs()) == 1, "the other has run")

    assert "deadline_ms is 'soon'" in report["cause"]


def test_a_batch_is_put_off_for_the_next_job_of_a_stream(cluster: Cluster) -> None:
    """It would end too late for that; when that does not come, it runs."""
    second = {"p50_ns": 10**9, "p95_ns": 10**9, "p99_ns": 10**9}
    cell = {"kind": "noop", "batch_class": 64, "occupancy": 0, "samples": 100, **second}
    profiles = cluster.folder / "profiles.json"
    profiles.write_text(json.dumps({"schema": 1, "conditions": {}, "cells": [cell]}))
    planning = json.dumps({"margin_percent": 100, "profiles": str(profiles)})
    cluster.start_worker(cpus=1, planning=planning)
    numbers = count(1)

    def is_put_off() -> bool:
        """Let the stream bring a job, then send others until it is time for its next."""
        live: dict[str, Any] = {"class": "protected", "period_ms": 1500, "deadline_ms": 1200}
        send(cluster, next(numbers), priority=0, captured_at_ms=now_ms(), **live)
        for _ in range(10):
            send(cluster, next(numbers))
            time.sleep(0.2)
        return bool((planning_of(cluster) or {}).get("vetoes"))

    wait_until(is_put_off, "one is put off")
    sent = next(numbers) - 1
    wait_until(lambda: len(cluster.runs()) == sent and not cluster.inflight(), "all have run")

    assert cluster.dead() == []
