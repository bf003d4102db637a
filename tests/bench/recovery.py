"""Measures how soon the jobs of a killed node run again: on another node, and on the same one started again.

``python -m tests.bench.recovery [--runs 20] [--lease-seconds 3] [--seed 1] [--json]``.
Two nodes, each as on a machine of its own, share two jobs that wait. One that
holds a job is killed with all its processes, at a random moment of its lease;
told is the time until its job has started on the other. Then it is started
again. At the end a node with a lease of ten minutes is killed and started
again on its machine; told is the time from its start until its job starts.
The exit code is 1 where a recovery took longer than the lease and 5 s, or a
job ran to its end more than once. docs/reliability.md holds what came out.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.reliability_log import Line
from tests.bench.reliability_nodes import TIEPOINT, Node
from tests.bench.reliability_scene import Scene, scene

_NAMES = ("one", "two")
_ALLOWED_SECONDS = 5.0
"""Beyond the lease."""
_LONG_LEASE_SECONDS = 600.0


class Cluster:
    """Two nodes and what they run; for one thread."""

    def __init__(self, made: Scene, rng: random.Random) -> None:
        self._scene = made
        self._rng = rng
        self._nodes = {name: made.start(name, processes=2) for name in _NAMES}

    def recover(self, run: int, lease_seconds: float) -> float:
        """Kill a node that holds a job; return the seconds until that has started on the other."""
        gate = self._scene.folder / f"gate-{run}"
        jobs = {self._scene.send(gate=str(gate)) for _ in _NAMES}
        self._scene.until(lambda: jobs <= self._started(), "both jobs run")
        victim = self._nodes[self._rng.choice(self._scene.log.starts()[-2:]).node]
        held = {line.job for line in self._scene.log.starts() if line.node == victim.name} & jobs
        # Three renewals in a lease, and what is not one: any moment between two of them, and a batch's end.
        time.sleep(self._rng.uniform(0, lease_seconds))
        killed_ns = time.monotonic_ns()
        victim.kill()
        again = self._scene.until(lambda: self._again(held, killed_ns), "a job of the killed node runs again")
        gate.touch()
        self._scene.until(self._scene.is_over, "all jobs are done")
        self._nodes[victim.name] = self._scene.start(victim.name, processes=2)
        return float(again.at_ns - killed_ns) / 1e9

    def _started(self) -> set[int]:
        return {line.job for line in self._scene.log.starts()}

    def _again(self, jobs: set[int], after_ns: int) -> Line | None:
        starts = (line for line in self._scene.log.starts() if line.job in jobs and line.at_ns > after_ns)
        return next(starts, None)


def recoveries(runs: int, lease_seconds: float, seed: int, show: Callable[[str], None]) -> dict[str, Any]:
    """Return how long so many recoveries took, and how many jobs ran to their end twice; shows each."""
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder,
        scene(TIEPOINT, Path(folder)) as made,
    ):
        made.configure(ours={"lease_seconds": lease_seconds})
        cluster = Cluster(made, rng)
        seconds: list[float] = []
        for run in range(runs):
            seconds.append(cluster.recover(run, lease_seconds))
            show(f"run {run + 1}: {seconds[-1]:.2f} s")
        counted = made.tally()
    return {
        "lease_seconds": lease_seconds,
        "seed": seed,
        "runs": runs,
        "within": sum(one <= lease_seconds + _ALLOWED_SECONDS for one in seconds),
        "median_seconds": round(statistics.median(seconds), 2),
        "max_seconds": round(max(seconds), 2),
        "jobs": counted.jobs,
        "lost": counted.lost,
        "ended_twice": counted.ended_twice,
    }


def restart() -> float:
    """Kill a node with a long lease and start it again; return the seconds from then until its job starts."""
    with (
        tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder,
        scene(TIEPOINT, Path(folder)) as made,
    ):
        made.configure(ours={"lease_seconds": _LONG_LEASE_SECONDS})
        node: Node = made.start("one")
        gate = made.folder / "gate"
        made.send(gate=str(gate))
        made.until(made.log.starts, "the job runs")
        node.kill()
        started_ns = time.monotonic_ns()
        made.start("one")
        made.until(lambda: len(made.log.starts()) == 2, "the job runs again")
        return float(made.log.starts()[1].at_ns - started_ns) / 1e9


def _show(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the bench's output


def _silent(_: str) -> None:
    """Show nothing: the report is one JSON object."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and tell by the exit code whether all is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recovery")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lease-seconds", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    read = parser.parse_args(arguments)
    show = _silent if read.json else _show
    report = recoveries(read.runs, read.lease_seconds, read.seed, show)
    report["restart_seconds"] = round(restart(), 2)
    for name, value in report.items():
        show(f"{name:<16} {value}")
    if read.json:
        print(json.dumps(report))  # noqa: T201 - the bench's output
    return int(report["within"] < report["runs"] or report["lost"] + report["ended_twice"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
