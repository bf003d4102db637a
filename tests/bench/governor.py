"""Measures what one decision of the governor costs, and one reading of the machine.

``python -m tests.bench.governor [--json] [--cycles N] [--decisions N]``.
Measured are, by turns, fifty runs each, and told is the median of all runs:

* A cycle: ``decide``, ``reserve`` and ``release`` of one SIFT batch by real
  figures, on a snapshot that is taken anew every 250 ms, as a worker does.
* A snapshot: all files read that a worker's has.
* A fixed loop of pure Python, which says how fast the machine is just now. The
  ratios to it compare runs on different machines, or beside other work.

``memory_growth_bytes`` is by how much the process has grown (resident set)
over many decisions, after the first of them have filled what is bounded.
``refused_cycles`` tells how many cycles reserved nothing, since the machine was
busy: those cost less, and should be few.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from governor.model import Snapshot
from tasks.feature_memory import ESTIMATES
from worker.node import Node
from worker.settings import Settings

_KIND = "features.extract.sift"
_ESTIMATE = ESTIMATES["sift"]
_WARM_UP_DECISIONS = 20_000
_LOOP_STEPS = 1000
_BLOCK = 50
"""So many runs of a part before it is the next one's turn."""


class Scene:
    """This machine's governor, asked as a worker asks it."""

    def __init__(self) -> None:
        self._node = Node(Settings.checked(profile="dedicated"))
        self._governor = self._node.governor
        self._snapshot = self.capture()
        self.refused = 0

    def capture(self) -> Snapshot:
        """Read the machine."""
        return self._node._capture()

    def refresh(self) -> None:
        """Read the machine again if that is due."""
        self._snapshot = self._node.snapshot()

    def cycle(self) -> None:
        """Decide, reserve, release."""
        self._governor.decide(self._snapshot, _ESTIMATE, _KIND, 40)
        _, reservation = self._governor.reserve(self._snapshot, _ESTIMATE, _KIND, 40)
        if reservation is None:
            self.refused += 1
        else:
            self._governor.release(reservation)

    def decisions(self, count: int) -> None:
        """Ask for that many decisions, in cycles of two."""
        for _ in range(count // 2):
            self.refresh()
            self.cycle()


def pure_python_loop() -> int:
    """Run the yardstick: whole numbers, a local name and a loop."""
    total = 0
    for number in range(_LOOP_STEPS):
        total += number * number % 7
    return total


def medians_us(scene: Scene, cycles: int) -> dict[str, float]:
    """Return the medians of a cycle, a snapshot and the yardstick, measured by turns."""
    parts: dict[str, Callable[[], object]] = {
        "decide_reserve_release": scene.cycle,
        "snapshot": scene.capture,
        "pure_python_loop": pure_python_loop,
    }
    spent_ns: dict[str, list[int]] = {name: [] for name in parts}
    for _ in range(cycles // _BLOCK):
        for name, part in parts.items():
            scene.refresh()
            spent_ns[name] += [_nanoseconds(part) for _ in range(_BLOCK)]
    return {name: statistics.median(spent) / 1e3 for name, spent in spent_ns.items()}


def _nanoseconds(part: Callable[[], object]) -> int:
    started_ns = time.perf_counter_ns()
    part()
    return time.perf_counter_ns() - started_ns


def memory_growth_bytes(scene: Scene, decisions: int) -> int:
    """Return by how much this process has grown over many decisions."""
    process = psutil.Process()
    scene.decisions(_WARM_UP_DECISIONS)
    before_bytes = process.memory_info().rss
    scene.decisions(decisions)
    return int(process.memory_info().rss - before_bytes)


def measure(cycles: int, decisions: int) -> dict[str, Any]:
    """Measure everything and return the report."""
    scene = Scene()
    scene.decisions(2000)
    medians = medians_us(scene, cycles)
    loop_us = medians["pure_python_loop"]
    ratios = {
        f"{name}_to_loop_ratio": round(medians[name] / loop_us, 2)
        for name in ("decide_reserve_release", "snapshot")
    }
    return {
        **{f"{name}_us_median": round(median, 1) for name, median in medians.items()},
        **ratios,
        "memory_growth_bytes": memory_growth_bytes(scene, decisions),
        "decisions": decisions,
        "refused_cycles": scene.refused,
    }


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.governor")
    parser.add_argument("--json", action="store_true", help="print one JSON object, indented otherwise")
    parser.add_argument("--cycles", type=int, default=4000, help="how often each part is timed")
    parser.add_argument("--decisions", type=int, default=1_000_000, help="over which growth is measured")
    read = parser.parse_args(arguments)
    report = measure(read.cycles, read.decisions)
    print(json.dumps(report, indent=None if read.json else 2))  # noqa: T201 - the bench's output
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
