"""Makes profiles of measured durations: quantiles of the cells that have enough, a line for each kind.

Pure. Does not cover measuring (:mod:`worker.calibrate`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from governor.planning.cell import quantile
from governor.planning.profile import MIN_SAMPLES, CellKey, Durations, LinearCost, ProfileSet
from worker.duration_log import BatchDuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, and what of it is too little."""

    profiles: ProfileSet
    samples: Mapping[CellKey, int]
    """Of every cell that was met."""

    @property
    def missing(self) -> dict[CellKey, int]:
        """Return the cells that were met too rarely, with how often they were."""
        return {key: count for key, count in self.samples.items() if key not in self.profiles.cells}


def profiles_of(
    batches: Iterable[BatchDuration], conditions: Mapping[str, str], hardware: Mapping[str, str]
) -> Measured:
    """Return the profiles of measured batches; a cell with fewer than 100 samples has none."""
    per_item_ns: dict[CellKey, list[int]] = defaultdict(list)
    of_kind: dict[str, list[BatchDuration]] = defaultdict(list)
    for batch in batches:
        key = CellKey.of(batch.kind, items=batch.items, others=batch.others, variant=batch.variant)
        per_item_ns[key].append(max(batch.duration_ns // batch.items, 1))
        of_kind[batch.kind].append(batch)
    cells = {
        key: _durations(sorted(found)) for key, found in per_item_ns.items() if len(found) >= MIN_SAMPLES
    }
    linear = {kind: _line(found) for kind, found in of_kind.items()}
    return Measured(
        profiles=ProfileSet(cells=cells, linear=linear, conditions=conditions, hardware=hardware),
        samples={key: len(found) for key, found in per_item_ns.items()},
    )


def _durations(ordered_ns: list[int]) -> Durations:
    p50, p95, p99 = (quantile(ordered_ns, percent) for percent in (50, 95, 99))
    return Durations(p50_ns=p50, p95_ns=p95, p99_ns=p99)


def _line(batches: list[BatchDuration]) -> LinearCost:
    """Return setup and per-item costs by least squares; neither is below nothing.

    Where all batches are of one size, or the slope is not above 0, all is per item.
    """
    sizes = np.array([batch.items for batch in batches], dtype=np.float64)
    durations_ns = np.array([batch.duration_ns for batch in batches], dtype=np.float64)
    if len(set(sizes)) > 1:
        slope, setup = np.polyfit(sizes, durations_ns, 1)
        if slope >= 1.0 and setup >= 0.0:
            return LinearCost(setup_ns=int(setup), per_item_ns=int(slope))
    return LinearCost(setup_ns=0, per_item_ns=max(int(durations_ns.sum() / sizes.sum()), 1))
