"""Decides how short of memory the machine is: a pure state machine over snapshots.

Green, yellow or red, and a cap on how large a batch may grow. What a colour
does to a request is decided in ``governor.admission``.
"""

from dataclasses import dataclass, replace

from governor.model import UINT64_MAX, Policy, Pressure, Snapshot

HEALTHY_FOR_A_STEP = 3
"""Consecutive healthy observations for one step of recovery."""
SWAPPING_FOR_RED = 2
"""Consecutive observations of growing swap traffic that lead to red."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureState:
    """What the machine remembers.

    ``growth_cap`` None is no cap. ``is_recovering`` tells whether the present
    yellow episode has seen a healthy observation. The streaks saturate. The
    swap counters are the last known ones.
    """

    colour: Pressure = Pressure.GREEN
    growth_cap: int | None = None
    is_recovering: bool = False
    healthy_streak: int = 0
    swapping_streak: int = 0
    observed_at_ns: int | None = None
    swapped_in_pages: int | None = None
    swapped_out_pages: int | None = None

    @property
    def halves_batches(self) -> bool:
        """Tell whether the signal stands and nothing healthy was seen since."""
        return self.colour is Pressure.YELLOW and not self.is_recovering


def observe(state: PressureState, snapshot: Snapshot, policy: Policy) -> PressureState:
    """Advance the machine by one snapshot; one that is not newer changes nothing."""
    if state.observed_at_ns is not None and snapshot.captured_at_ns <= state.observed_at_ns:
        return state
    seen = _remember(state, snapshot)
    if _is_emergency(snapshot, policy):
        return _red(replace(seen, swapping_streak=0))
    if _swap_grew(state, snapshot):
        return _swapping(seen)
    calm = replace(seen, swapping_streak=0)
    if snapshot.memory_available_bytes <= policy.memory_reserve_bytes:
        return _at_least_yellow(calm)
    if is_any_psi_at_limit(snapshot, policy):
        return replace(calm, healthy_streak=0)
    return _healthy(calm)


def is_at_limit(measured_percent: float | None, limit_percent: float | None) -> bool:
    """Tell whether a reading reaches its limit; unknown or no limit: it does not."""
    return measured_percent is not None and limit_percent is not None and measured_percent >= limit_percent


def is_any_psi_at_limit(snapshot: Snapshot, policy: Policy) -> bool:
    """Tell whether the CPU, memory or IO pressure reaches its limit."""
    return (
        is_at_limit(snapshot.cpu_psi_percent, policy.cpu_psi_limit_percent)
        or is_at_limit(snapshot.memory_psi_percent, policy.memory_psi_limit_percent)
        or is_at_limit(snapshot.io_psi_percent, policy.io_psi_limit_percent)
    )


def _is_emergency(snapshot: Snapshot, policy: Policy) -> bool:
    floor_bytes = policy.memory_emergency_bytes
    return floor_bytes > 0 and snapshot.memory_available_bytes <= floor_bytes


def _remember(state: PressureState, snapshot: Snapshot) -> PressureState:
    state = replace(state, observed_at_ns=snapshot.captured_at_ns)
    if snapshot.swapped_in_pages is None or snapshot.swapped_out_pages is None:
        return state
    return replace(
        state,
        swapped_in_pages=snapshot.swapped_in_pages,
        swapped_out_pages=snapshot.swapped_out_pages,
    )


def _swap_grew(state: PressureState, snapshot: Snapshot) -> bool:
    return _grew(state.swapped_in_pages, snapshot.swapped_in_pages) or _grew(
        state.swapped_out_pages, snapshot.swapped_out_pages
    )


def _grew(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now > before


def _swapping(state: PressureState) -> PressureState:
    state = replace(state, swapping_streak=_next(state.swapping_streak))
    return _red(state) if state.swapping_streak >= SWAPPING_FOR_RED else _at_least_yellow(state)


def _red(state: PressureState) -> PressureState:
    return replace(state, colour=Pressure.RED, growth_cap=1, is_recovering=False, healthy_streak=0)


def _at_least_yellow(state: PressureState) -> PressureState:
    if state.colour is Pressure.GREEN:
        state = replace(state, colour=Pressure.YELLOW, is_recovering=False)
    return replace(state, healthy_streak=0)


def _healthy(state: PressureState) -> PressureState:
    state = replace(state, healthy_streak=_next(state.healthy_streak))
    if state.colour is Pressure.YELLOW:
        state = replace(state, growth_cap=1, is_recovering=True)
    return _recover(state) if state.healthy_streak >= HEALTHY_FOR_A_STEP else state


def _recover(state: PressureState) -> PressureState:
    match state.colour:
        case Pressure.RED:
            return replace(state, colour=Pressure.YELLOW, is_recovering=True, healthy_streak=0)
        case Pressure.YELLOW:
            return replace(state, colour=Pressure.GREEN, is_recovering=False, healthy_streak=0)
        case Pressure.GREEN if state.growth_cap is not None:
            return replace(state, growth_cap=_doubled(state.growth_cap), healthy_streak=0)
        case Pressure.GREEN:
            return state


def _doubled(growth_cap: int) -> int | None:
    """Return twice the cap; None once no valid batch can reach it."""
    return None if 2 * growth_cap > UINT64_MAX else 2 * growth_cap


def _next(streak: int) -> int:
    return min(streak + 1, UINT64_MAX)
