"""Measures what planning costs per batch: a plan at dispatch, what is learned at completion, a veto.

``python -m tests.bench.planning_cost [--json] [--batches N]``. Medians of
blocks of 50, in microseconds: with and without a learned factor, over 16 kinds whose
cells are full; and of one candidate looked at beside 16 streams of a higher class.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from governor.planning.contract import Contract, ServiceClass
from governor.planning.look_ahead import Candidate, Forecast, Stream, forecast, vetoing
from governor.planning.profile import CellKey, Durations, ProfileSet
from worker.planning import NodePlanning
from worker.planning_settings import MarginLearning, PlanningSettings

_BLOCK = 50
_KINDS = tuple(f"kind{number}" for number in range(16))
_MS = 1_000_000
_TOOK_NS = 9 * _MS


def a_planning(*, learns: bool) -> NodePlanning:
    """Return a node's planning with full cells."""
    durations = Durations(p50_ns=8 * _MS, p95_ns=9 * _MS, p99_ns=10 * _MS)
    profiles = ProfileSet(cells={CellKey(kind=kind, batch_class=8): durations for kind in _KINDS})
    learning = MarginLearning() if learns else None
    planning = NodePlanning(PlanningSettings(margin_learning=learning), profiles)
    for _ in range(64):
        for kind in _KINDS:
            one_batch(planning, kind)
    return planning


def one_batch(planning: NodePlanning, kind: str) -> None:
    """Plan and complete one batch of eight."""
    plan = planning.plan(kind, items=8, others=0)
    if plan is None:
        raise KeyError(kind)
    planning.complete(plan, 8 * _TOOK_NS)


def one_look_ahead(streams: Sequence[Stream], now_ns: int) -> bool:
    """Foresee every stream, and ask whether a candidate is in the way of one."""
    foreseen = [forecast(stream, 10 * _MS, now_ns) for stream in streams]
    candidate = Candidate(service_class=ServiceClass.BEST_EFFORT, projected_end_ns=now_ns + 10 * _MS)
    return vetoing(candidate, [one for one in foreseen if one is not None], _start) is not None


def _start(arrival: Forecast, candidate: Candidate | None) -> int:
    return max(arrival.earliest_start_ns, candidate.projected_end_ns if candidate else 0)


def streams() -> list[Stream]:
    """Return sixteen protected streams that have begun."""
    contract = Contract(
        service_class=ServiceClass.PROTECTED, period_ns=100 * _MS, deadline_ns=150 * _MS, max_age_ns=200 * _MS
    )
    made = [Stream(contract=contract, jitter_ns=_MS) for _ in range(16)]
    for number, stream in enumerate(made):
        stream.note_arrival(number * _MS, number * _MS)
    return made


def median_us(run: Callable[[int], object], batches: int) -> float:
    """Return the median over blocks of what one run takes, in microseconds."""
    blocks = []
    for first in range(0, batches, _BLOCK):
        begun_ns = time.perf_counter_ns()
        for number in range(first, first + _BLOCK):
            run(number)
        blocks.append((time.perf_counter_ns() - begun_ns) / _BLOCK / 1000)
    return round(statistics.median(blocks), 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    learned, fixed, all_streams = a_planning(learns=True), a_planning(learns=False), streams()
    told = {
        "batch_us_learned": median_us(lambda n: one_batch(learned, _KINDS[n % 16]), options.batches),
        "batch_us_fixed": median_us(lambda n: one_batch(fixed, _KINDS[n % 16]), options.batches),
        "look_ahead_16_streams_us": median_us(lambda n: one_look_ahead(all_streams, n), options.batches),
    }
    text = json.dumps(told) if options.json else "\n".join(f"{name}: {us}" for name, us in told.items())
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
