"""A real worker plans its batches and learns from those that were real work."""

import json
from pathlib import Path
from typing import Any

from tests.integration.conftest import Cluster, wait_until

_OF_TIME = {"claims", "empty_claims", "wake_ups"}


def planning_of(cluster: Cluster) -> dict[str, Any] | None:
    """Ask the worker what it has learned."""
    stats = cluster.ask("stats")
    planning: dict[str, Any] | None = stats["governor"].get("planning")
    return planning


def test_a_worker_learns_from_real_work_alone(cluster: Cluster, profiles: Path) -> None:
    """Twenty jobs one after the other, and one that fails."""
    told = json.dumps({"margin_learning": {}, "profiles": str(profiles)})
    cluster.start_worker(cpus=1, planning=told, durations=cluster.folder / "durations")
    for number in range(20):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log})
    cluster.send("noop", kwargs={"number": 99, "fail": True, "log": cluster.run_log})
    wait_until(lambda: len(cluster.runs()) == 21 and not cluster.inflight(), "all are settled")
    planning = planning_of(cluster)

    assert planning is not None
    learned = planning["kinds"]["noop"]
    assert 1 <= learned["observations"] <= 20
    # From 16 on the plan is at least the observed median.
    assert min(16, learned["observations"]) <= learned["overruns"]
    assert learned["factor_percent"] > 110
    written = [json.loads(line) for line in (cluster.folder / "durations").read_text().splitlines()]
    assert len(written) == learned["observations"]
    assert sum(batch["items"] for batch in written) <= 20


def test_a_worker_that_was_not_asked_to_plans_nothing(cluster: Cluster) -> None:
    """Off is absent."""
    cluster.start_worker(cpus=1)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "it is settled")

    assert planning_of(cluster) is None


def work(cluster: Cluster, jobs: int, **settings: Any) -> dict[str, Any]:
    """Let a new worker work off so many jobs that all wait when it starts; return all that it decided."""
    before = len(cluster.runs())
    for number in range(jobs):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log})
    worker = cluster.start_worker(cpus=1, **settings)
    wait_until(lambda: len(cluster.runs()) == before + jobs and not cluster.inflight(), "all are settled")
    counters = cluster.ask("stats")["governor"]["counters"]
    decisions = [
        told for told in cluster.ask("decisions", kind="noop")["decisions"] if told["reservation_id"]
    ]
    worker.process.terminate()
    worker.process.wait()
    return {
        "order": [number for number, _, _ in cluster.runs()[before:]],
        # How often it looked for work or was woken depends on how fast it was.
        "counters": {name: n for name, n in counters.items() if name not in _OF_TIME},
        "decisions": {(told["verdict"], told["reason"], told["batch"]) for told in decisions},
        "reservations": max(told["reservation_id"] for told in decisions),
    }


def test_planning_without_learning_decides_like_none(cluster: Cluster, profiles: Path) -> None:
    """500 jobs, one by one: the same order, counters, decisions and reservations."""
    absent = work(cluster, 500)
    off = work(cluster, 500, planning=json.dumps({"profiles": str(profiles)}))

    assert off == absent
    assert absent["order"] == list(range(500))
    assert absent["reservations"] == 500
