"""Plans the batches of one node and lets them teach; off unless the node's settings say how.

Main thread only. Does not cover the arithmetic (:mod:`governor.planning`), nor
which batches may teach (:mod:`worker.running_batch`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from governor.planning.learner import Learner, LearnerSettings, percent_of
from governor.planning.planner import Plan, Planner
from governor.planning.profile import CellKey, ProfileSet
from worker.factor_verdicts import Judgement, KeptFactors, restore
from worker.logs import get_logger
from worker.planning_settings import MarginLearning, PlanningSettings
from worker.profile_file import read_profiles

log = get_logger(__name__)


class NodePlanning:
    """The plans of one node, what they have learned, and how often they were overrun."""

    def __init__(self, settings: PlanningSettings, profiles: ProfileSet) -> None:
        self.settings = settings
        self.profiles = profiles
        margin_percent, learning = settings.margin_percent, settings.margin_learning
        self.learner = None if learning is None else Learner(settings=_bounds(margin_percent, learning))
        self._planner = Planner(profiles, margin_percent=margin_percent, learner=self.learner)
        self._shadow = (
            Planner(profiles, margin_percent=margin_percent) if settings.prediction == "shadow" else None
        )
        self.on_observation: Callable[[], None] = lambda: None
        """Called after each batch that has taught."""
        self._observations: Counter[str] = Counter()
        self._overruns: Counter[str] = Counter()
        self._shadow_overruns: Counter[str] = Counter()
        self._distrust_what_nobody_measured()

    def _distrust_what_nobody_measured(self) -> None:
        for kind in self.profiles.kinds - self.profiles.measured_kinds:
            self._planner.distrust(kind)

    @classmethod
    def of(cls, settings: PlanningSettings | None) -> "NodePlanning | None":
        """Return a node's planning as its settings say, with its profiles read; None = nothing is planned.

        Raises:
            ProfileFileError: the profiles cannot be read.
        """
        if settings is None:
            return None
        made = cls(settings, read_profiles(settings.profiles))
        log.info(
            "planning",
            margin_percent=settings.margin_percent,
            learning=settings.margin_learning is not None,
            profiles=str(settings.profiles or "reference"),
            kinds=sorted(made.profiles.kinds),
        )
        return made

    def plan(self, kind: str, *, items: int, others: int, variant: str = "cpu") -> Plan | None:
        """Return how long a batch takes that starts now beside so many others; None where no profile says."""
        return self._planner.plan(CellKey.of(kind, items=items, others=others, variant=variant), items)

    def likely_ns(self, kind: str) -> int:
        """Return how long one job of a kind is likely to take that starts alone; 0 where no profile says."""
        plan = self.plan(kind, items=1, others=0)
        return 0 if plan is None else plan.optimistic_ns

    def complete(self, plan: Plan, duration_ns: int) -> None:
        """Learn from a complete success of real work: the plan of its dispatch, and how long it took."""
        kind = plan.key.kind
        if self._shadow is not None:
            compared = self._shadow.plan(plan.key, plan.items)
            if compared is not None:
                self._shadow_overruns[kind] += self._shadow.complete(compared, duration_ns)
        self._overruns[kind] += self._planner.complete(plan, duration_ns)
        self._observations[kind] += 1
        self.on_observation()

    def forget(self) -> None:
        """Start over: with the margin, without durations; counts since the start stay."""
        for planner in filter(None, (self._planner, self._shadow)):
            for kind in self.profiles.kinds:
                planner.forget(kind)
        if self.learner is not None:
            self.learner.forget()
        self._distrust_what_nobody_measured()

    def identities(self) -> dict[str, str]:
        """Return what the profile of each kind is known by."""
        return {kind: self.profiles.identity(kind) for kind in self.profiles.kinds}

    def restore(self, kept: KeptFactors, judgement: Judgement) -> None:
        """Go on with what is believed of factors that were learned before."""
        if self.learner is None:
            return
        restore(self.learner, kept, judgement)
        for kind in judgement.distrusted:
            self._planner.distrust(kind)

    def kept(
        self, sequence: int, fingerprint: Mapping[str, str], identities: Mapping[str, str]
    ) -> KeptFactors:
        """Return what is learned so far, to be kept."""
        learner = self.learner or Learner()
        return KeptFactors(
            sequence=sequence,
            device=(learner.device.value, learner.device.count),
            residuals={kind: (level.value, level.count) for kind, level in learner.residuals.items()},
            targets_permille={kind: learner.target_permille(kind) for kind in learner.residuals},
            fingerprint=fingerprint,
            identities=identities,
        )

    @property
    def observations(self) -> int:
        """Return how many batches have taught since the start."""
        return self._observations.total()

    def factor_percent(self, kind: str) -> int | None:
        """Return a kind's learned factor in percent; None where none is learned."""
        return None if self.learner is None else self.learner.factor_percent(kind)

    def describe(self) -> dict[str, Any]:
        """Return what ``inspect stats`` tells of it: factors in percent, counts since the start."""
        return {
            "learning": self.learner is not None,
            "margin_percent": self.settings.margin_percent,
            "device_factor_percent": 0 if self.learner is None else percent_of(self.learner.device.value),
            "kinds": {kind: self._describe_kind(kind) for kind in sorted(self._observations)},
        }

    def _describe_kind(self, kind: str) -> Mapping[str, int | None]:
        ready_cells, cells = self._planner.cells(kind)
        told: dict[str, int | None] = {
            "factor_percent": self.factor_percent(kind),
            "margin_percent": None if self.learner is not None else self._planner.margin_percent(kind),
            "ready_cells": ready_cells,
            "cells": cells,
            "observations": self._observations[kind],
            "overruns": self._overruns[kind],
        }
        if self._shadow is not None:
            told["shadow_overruns"] = self._shadow_overruns[kind]
        return told


def _bounds(margin_percent: int, learning: MarginLearning) -> LearnerSettings:
    return LearnerSettings(
        start_percent=margin_percent,
        min_factor_percent=learning.min_factor_percent,
        max_factor_percent=learning.max_factor_percent,
        min_observations=learning.min_observations,
    )
