"""Reads what a worker started on this machine would see and could offer.

Does not cover the workers of a cluster (:mod:`worker.live_nodes`) nor how it
is shown (:mod:`worker.node_tables`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from governor import budget
from governor import policy as policies
from governor.errors import InvalidPolicyError, ProfileError, SnapshotError
from governor.model import HardwareProfile, Policy, Resources, Snapshot
from worker.machine import workers_here
from worker.node import Node
from worker.node_entry import limits_of
from worker.partitions import Partition
from worker.settings import Settings, WrongSettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a worker with one profile would leave alone and hand out here."""

    policy: Policy
    offers: Resources
    """To a single batch, when nothing else uses the machine..."""
    budget: Resources
    """...and what the machine leaves of that now."""
    problems: tuple[str, ...]
    """Why a worker with this profile would refuse to start; nothing: it would start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """One reading of this machine, as a worker would make it."""

    profile: HardwareProfile
    limits: dict[str, Any]
    readings: Snapshot
    offers: dict[str, Offer]
    """By the name of the profile."""
    workers: Sequence[Partition]
    """Those that hold the machine, or parts of it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of it; workers without the digest of their queue."""
        readings = asdict(self.readings)
        del readings["captured_at_ns"]
        return {
            "machine": {**asdict(self.profile), "limits": self.limits},
            "readings": readings,
            "profiles": {name: asdict(offer) for name, offer in self.offers.items()},
            "workers": [
                {"name": worker.name, "memory_bytes": worker.memory_bytes, "cpus": worker.cpus}
                for worker in self.workers
            ],
        }


def read_this_machine(settings: Settings) -> ThisMachine:
    """Read this machine, less the partition that the settings name.

    Raises:
        WrongSettingError: it cannot be read, or is too small for any worker.
    """
    try:
        node = Node(settings)
        readings = node.snapshot()
    except (ProfileError, SnapshotError, InvalidPolicyError) as error:
        raise WrongSettingError(f"no worker could start on this machine: {error}") from error
    return ThisMachine(
        profile=node.profile,
        limits=limits_of(node),
        readings=readings,
        offers={name.value: _offer(name, node.profile, readings) for name in policies.PolicyName},
        workers=workers_here(settings),
    )


def _offer(name: policies.PolicyName, profile: HardwareProfile, readings: Snapshot) -> Offer:
    policy = policies.named(name, profile)
    return Offer(
        policy=policy,
        offers=budget.most(profile, policy),
        budget=budget.live_budget(profile, policy, readings),
        problems=policies.violations(policy, profile),
    )
