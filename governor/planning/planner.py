"""Plans how long a batch takes on this node: cautiously for deadlines, likely for displays.

Two ways, never both: a learned factor (opt-in), or a margin per kind. Integers
only; not thread-safe. Does not measure, and does not decide what may start.
"""

from dataclasses import dataclass

from governor.planning.cell import Cell
from governor.planning.learner import Learner
from governor.planning.margin import Margins
from governor.planning.profile import CellKey, Profiled, ProfileSet

_MEDIAN_PERCENT = 50
_HIGH_PERCENT = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long one batch is planned to take, in nanoseconds."""

    key: CellKey
    items: int
    conservative_ns: int
    """What it takes at most but for the target share of overruns."""
    optimistic_ns: int
    """Its median."""

    def is_overrun_by(self, duration_ns: int) -> bool:
        """Tell whether a batch took longer than planned when it was dispatched."""
        return duration_ns > self.conservative_ns


class Planner:
    """Plans and learns for one node."""

    def __init__(self, profiles: ProfileSet, *, margin_percent: int, learner: Learner | None = None) -> None:
        self._profiles = profiles
        self._margins = Margins(margin_percent)
        self._cells: dict[CellKey, Cell] = {}
        self._found: dict[tuple[CellKey, int], Profiled | None] = {}
        self.learner = learner

    def plan(self, key: CellKey, items: int = 1) -> Plan | None:
        """Return the plan of a batch, None where nothing is known of its kind."""
        profiled = self._find(key, items)
        if profiled is None:
            return None
        cell, durations = self.cell(key), profiled.durations
        median_ns = cell.quantile_ns(_MEDIAN_PERCENT)
        if self.learner is not None:
            # Never the observed p95: its base would change while a cell fills, and nothing would converge.
            learned_ns = durations.p99_ns * self.learner.factor_percent(key.kind) // 100
            per_item_ns = max(learned_ns, median_ns or 0)
            likely_ns = durations.p50_ns if median_ns is None else median_ns
        else:
            percent = self._margins.percent(key.kind, is_verified=profiled.is_verified)
            per_item_ns = max(durations.p99_ns, cell.quantile_ns(_HIGH_PERCENT) or 0) * percent // 100
            likely_ns = max(durations.p50_ns, median_ns or 0)
        return Plan(
            key=key, items=items, conservative_ns=items * per_item_ns, optimistic_ns=items * likely_ns
        )

    def complete(self, plan: Plan, duration_ns: int) -> bool:
        """Learn from a complete success of real work; return whether it overran the plan of its dispatch."""
        overran = plan.is_overrun_by(duration_ns)
        self.cell(plan.key).add(duration_ns, plan.items)
        if self.learner is not None:
            self.learner.observe(plan.key.kind, overran=overran)
        else:
            self._margins.observe(plan.key.kind, overran=overran)
        return overran

    def cell(self, key: CellKey) -> Cell:
        """Return the durations observed of one cell."""
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = Cell()
        return found

    def _find(self, key: CellKey, items: int) -> Profiled | None:
        """Look a profile up once: plans are made at every look at the queues."""
        if (key, items) not in self._found:
            self._found[key, items] = self._profiles.find(key, items)
        return self._found[key, items]

    def margin_percent(self, kind: str) -> int:
        """Return the fixed margin of a kind as it is now, in percent."""
        return self._margins.percent(kind)

    def cells(self, kind: str) -> tuple[int, int]:
        """Return how many cells of a kind are believed, and how many were ever met."""
        met = [cell for key, cell in self._cells.items() if key.kind == kind]
        return sum(cell.is_ready for cell in met), len(met)

    def distrust(self, kind: str) -> None:
        """Take a kind's profile for unmeasured on this node: forget its durations and its own factor."""
        self.forget(kind)
        if self.learner is not None:
            self.learner.distrust(kind)

    def forget(self, kind: str) -> None:
        """Forget the durations that were observed of a kind."""
        for key, cell in self._cells.items():
            if key.kind == kind:
                cell.clear()
