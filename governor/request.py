"""Holds what a decision is made from: the request, the situation, and both combined."""

from dataclasses import dataclass

from governor.budget import Charge
from governor.history import BatchRecord
from governor.model import Estimate, HardwareProfile, Policy, Resources, Snapshot
from governor.pressure import PressureState


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for.

    With ``waiting_items`` (this batch's own included) the request is sized so
    that the items spread over ``nodes`` and cores; None asks for all that is
    free, up to the estimate's ceilings.
    """

    estimate: Estimate
    waiting_items: int | None = None
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that the governor knows when it decides; ``history`` is the kind's own."""

    now_ns: int
    profile: HardwareProfile
    policy: Policy
    snapshot: Snapshot
    pressure: PressureState
    history: tuple[BatchRecord, ...]
    reserved: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request in its situation, with the pressure after this snapshot and what is free."""

    request: Request
    situation: Situation
    pressure: PressureState
    charge: Charge
    budget: Resources
    free: Resources

    @property
    def min_batch(self) -> int:
        """The estimate's smallest batch."""
        return self.request.estimate.min_batch

    @property
    def max_batch(self) -> int:
        """The estimate's largest batch."""
        return self.request.estimate.max_batch
