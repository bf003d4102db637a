"""Decides how much of a node to leave alone: the two policies, and what is valid.

Applying a policy is the business of ``governor.budget``.
"""

from enum import StrEnum

from governor.model import UINT64_MAX, Gpu, HardwareProfile, Policy
from governor.wording import in_binary_units

_MIB = 2**20


class PolicyName(StrEnum):
    """The policies a user can choose."""

    INTERACTIVE = "interactive"
    DEDICATED = "dedicated"


def named(name: PolicyName, profile: HardwareProfile) -> Policy:
    """Return the policy of that name for a node."""
    match name:
        case PolicyName.INTERACTIVE:
            return interactive(profile)
        case PolicyName.DEDICATED:
            return dedicated(profile)


def interactive(profile: HardwareProfile) -> Policy:
    """Return the policy of a machine that somebody sits at.

    A quarter of the RAM and of the CPUs stays free, and any neighbour that
    makes the CPU wait stops admission.
    """
    cpu_reserve_threads = interactive_cpu_reserve_threads(profile.logical_cpus)
    return Policy(
        memory_reserve_bytes=profile.memory_total_bytes // 4,
        memory_emergency_bytes=profile.memory_total_bytes // 8,
        cpu_reserve_threads=cpu_reserve_threads,
        io_slots=max(1, profile.logical_cpus - cpu_reserve_threads),
        gpu_memory_reserve_bytes=_gpu_reserve_bytes(profile.gpu),
        gpu_slots=0 if profile.gpu is None else 1,
        cpu_psi_limit_percent=20,
        memory_psi_limit_percent=1,
        io_psi_limit_percent=80,
    )


def dedicated(profile: HardwareProfile) -> Policy:
    """Return the policy of a headless worker: nearly all of it may be used.

    A node of 512 MiB or less gets a policy that :func:`violations` refuses.
    """
    memory_reserve_bytes = max(512 * _MIB, profile.memory_total_bytes // 16)
    return Policy(
        memory_reserve_bytes=memory_reserve_bytes,
        memory_emergency_bytes=memory_reserve_bytes // 2,
        cpu_reserve_threads=0,
        io_slots=profile.logical_cpus,
        gpu_memory_reserve_bytes=_gpu_reserve_bytes(profile.gpu),
        gpu_slots=0 if profile.gpu is None else 1,
        cpu_psi_limit_percent=None,
        memory_psi_limit_percent=5,
        io_psi_limit_percent=80,
    )


def interactive_cpu_reserve_threads(logical_cpus: int) -> int:
    """Return a quarter of the CPUs, but at least one where there are more than two."""
    return max(logical_cpus // 4, 1 if logical_cpus > 2 else 0)


def violations(policy: Policy, profile: HardwareProfile) -> tuple[str, ...]:
    """Return one sentence per rule that the policy breaks on this node; none: valid."""
    rules = (
        *_memory_rules(policy, profile),
        *_cpu_and_io_rules(policy, profile),
        *_gpu_rules(policy, profile),
    )
    return tuple(text for holds, text in rules if not holds)


_Rule = tuple[bool, str]


def _memory_rules(policy: Policy, profile: HardwareProfile) -> tuple[_Rule, ...]:
    total, total_text = profile.memory_total_bytes, in_binary_units(profile.memory_total_bytes)
    reserve, reserve_text = policy.memory_reserve_bytes, in_binary_units(policy.memory_reserve_bytes)
    emergency, emergency_text = policy.memory_emergency_bytes, in_binary_units(policy.memory_emergency_bytes)
    return (
        (0 <= reserve < total, f"the memory reserve of {reserve_text} leaves nothing of {total_text}"),
        (
            0 <= emergency <= reserve,
            f"the emergency floor of {emergency_text} is not within the reserve of {reserve_text}",
        ),
        (total <= UINT64_MAX, f"a total of {total_text} is out of range"),
    )


def _cpu_and_io_rules(policy: Policy, profile: HardwareProfile) -> tuple[_Rule, ...]:
    reserve, cpus = policy.cpu_reserve_threads, profile.logical_cpus
    return (
        (0 <= reserve < cpus, f"the CPU reserve of {reserve} threads leaves none of {cpus}"),
        (policy.io_slots >= 1, "there must be an IO slot"),
        *(
            (
                limit is None or 0 <= limit <= 100,
                f"the {name} pressure limit of {limit} % is not in 0..100",
            )
            for name, limit in (
                ("CPU", policy.cpu_psi_limit_percent),
                ("memory", policy.memory_psi_limit_percent),
                ("IO", policy.io_psi_limit_percent),
            )
        ),
    )


def _gpu_rules(policy: Policy, profile: HardwareProfile) -> tuple[_Rule, ...]:
    total = None if profile.gpu is None else profile.gpu.memory_total_bytes
    reserve = policy.gpu_memory_reserve_bytes
    return (
        (policy.gpu_slots >= (0 if profile.gpu is None else 1), "a node with a GPU must have a GPU slot"),
        (
            reserve >= 0 and (total is None or reserve < total),
            f"the GPU reserve of {in_binary_units(reserve)} leaves nothing of {in_binary_units(total or 0)}",
        ),
    )


def _gpu_reserve_bytes(gpu: Gpu | None) -> int:
    return 0 if gpu is None or gpu.memory_total_bytes is None else gpu.memory_total_bytes // 8
