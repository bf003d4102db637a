"""Learns the factor between profiled and real durations: one level for the node, one per kind.

A factor follows the (1 - t) quantile of duration / profile p99: a batch that
overran its plan lifts it much, one that kept it lowers it a little, in the
ratio (1 - t) : t. So in the long run a share t of the batches overruns.
Integers only; not thread-safe. Does not decide what counts as an observation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

ONE = 1_000_000
"""Factors are in millionths."""
GAIN = 100_000
"""Of one level, in millionths of the natural logarithm, shared by both directions; each level gets half."""
MIN_RESIDUAL = ONE // 4
MAX_RESIDUAL = 4 * ONE
UNVERIFIED_POINTS = 40
"""What an unmeasured profile costs on top, in percent points of the start."""
DEFAULT_TARGET_PERMILLE = 10
_TARGET_RANGE = (1, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Within what bounds a factor is learned; percent of the profile's p99."""

    start_percent: int = 110
    min_factor_percent: int = 50
    max_factor_percent: int = 1000
    min_observations: int = 48
    """So many executions come before a level may step down."""

    @property
    def min_factor(self) -> int:
        """Return the smallest factor in millionths."""
        return self.min_factor_percent * ONE // 100

    @property
    def max_factor(self) -> int:
        """Return the largest factor in millionths."""
        return self.max_factor_percent * ONE // 100

    @property
    def start(self) -> int:
        """Return the factor of a node that has learned nothing, in millionths."""
        return self.start_percent * ONE // 100

    @property
    def unverified_residual(self) -> int:
        """Return the residual of a kind whose profile is unmeasured, in millionths."""
        surcharged = -(-(self.start_percent + UNVERIFIED_POINTS) * ONE // self.start_percent)
        return _clamped(surcharged, MIN_RESIDUAL, MAX_RESIDUAL)


@dataclass(slots=True, kw_only=True)
class Level:
    """One learned factor and how many executions it has seen."""

    value: int
    """In millionths."""
    count: int = 0


@dataclass(slots=True, kw_only=True)
class Learner:
    """The factors of one node: factor of a kind = device x residual of the kind."""

    settings: LearnerSettings = field(default_factory=LearnerSettings)
    targets_permille: Mapping[str, int] = field(default_factory=dict)
    """Miss budget of a kind, where it is not 10."""
    device: Level = field(init=False)
    residuals: dict[str, Level] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.device = Level(value=self.settings.start)

    def target_permille(self, kind: str) -> int:
        """Return how many of 1000 executions of a kind may overrun, 1..50."""
        return _clamped(self.targets_permille.get(kind, DEFAULT_TARGET_PERMILLE), *_TARGET_RANGE)

    def factor(self, kind: str) -> int:
        """Return duration / profile p99 as learned, in millionths; a kind that never ran has the device's."""
        return self._clamped_factor(self.device.value * self.residual(kind) // ONE)

    def residual(self, kind: str) -> int:
        """Return a kind's own part of its factor, in millionths; 1 before it has run."""
        level = self.residuals.get(kind)
        return ONE if level is None else level.value

    def factor_percent(self, kind: str) -> int:
        """Return the factor in percent, rounded up."""
        return percent_of(self.factor(kind))

    def observe(self, kind: str, *, overran: bool) -> None:
        """Learn from one complete execution of real work: whether it took longer than its plan."""
        residual = self.residuals.setdefault(kind, Level(value=ONE))
        self.device.count += 1
        residual.count += 1
        limit = self.settings.max_factor if overran else self.settings.min_factor
        if self.factor(kind) == limit:
            return  # No debt: what would lie beyond the limit must not be paid back later.
        target = self.target_permille(kind)
        if overran or self.device.count >= self.settings.min_observations:
            self.device.value = self._clamped_factor(_stepped(self.device.value, target, overran=overran))
        if overran or residual.count >= self.settings.min_observations:
            residual.value = _clamped(
                _stepped(residual.value, target, overran=overran), MIN_RESIDUAL, MAX_RESIDUAL
            )

    def distrust(self, kind: str) -> None:
        """Start a kind over whose profile is unmeasured on this node; the device's factor stays."""
        self.residuals[kind] = Level(value=self.settings.unverified_residual)

    def forget(self) -> None:
        """Start over as a node that has learned nothing."""
        self.device = Level(value=self.settings.start)
        self.residuals.clear()

    def restore_device(self, value: int, count: int) -> None:
        """Go on with the device's factor (millionths) and its count, learned before, within the limits."""
        self.device = Level(value=self._clamped_factor(value), count=count)

    def restore_residuals(self, levels: Mapping[str, tuple[int, int]]) -> None:
        """Go on with residuals (millionths) and counts that were learned before, within the limits."""
        for kind, (value, count) in levels.items():
            self.residuals[kind] = Level(value=_clamped(value, MIN_RESIDUAL, MAX_RESIDUAL), count=count)

    def _clamped_factor(self, factor: int) -> int:
        return _clamped(factor, self.settings.min_factor, self.settings.max_factor)


def percent_of(factor: int) -> int:
    """Return a factor in percent, rounded up."""
    return -(-factor // (ONE // 100))


def step_up(factor: int, target_permille: int) -> int:
    """Return a factor after an overrun: times e^x in its Pade fraction (2 + x) / (2 - x), rounded up."""
    x = GAIN // 2 * (1000 - target_permille) // 1000
    return -(-factor * (2 * ONE + x) // (2 * ONE - x))


def step_down(factor: int, target_permille: int) -> int:
    """Return a factor after a kept plan: times e^-x, the reciprocal fraction, rounded down."""
    x = GAIN // 2 * target_permille // 1000
    return factor * (2 * ONE - x) // (2 * ONE + x)


def _stepped(factor: int, target_permille: int, *, overran: bool) -> int:
    return step_up(factor, target_permille) if overran else step_down(factor, target_permille)


def _clamped(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)
