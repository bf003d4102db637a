"""Tests of the two policies and of what makes a policy valid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.model import HardwareProfile
from governor.policy import PolicyName, dedicated, interactive, named, violations
from tests.unit.governor.builders import GIB, MIB, a_dedicated_gpu, a_policy, a_profile, a_uma_gpu


def a_node(logical_cpus: int, memory_mib: int) -> HardwareProfile:
    """Build a node of that size."""
    return a_profile(logical_cpus=logical_cpus, memory_total_bytes=memory_mib * MIB)


@pytest.mark.parametrize(
    ("logical_cpus", "reserve_threads"),
    [(1, 0), (2, 0), (3, 1), (4, 1), (8, 2), (12, 3), (16, 4), (24, 6), (64, 16)],
)
def test_interactive_leaves_a_quarter_of_the_cpus(logical_cpus: int, reserve_threads: int) -> None:
    """A quarter, but at least one thread where there are more than two."""
    assert interactive(a_profile(logical_cpus=logical_cpus)).cpu_reserve_threads == reserve_threads


def test_interactive_keeps_4_gib_and_4_threads_of_16() -> None:
    """The owner's example host, all its numbers."""
    policy = interactive(a_profile())

    assert (policy.memory_reserve_bytes, policy.memory_emergency_bytes) == (4 * GIB, 2 * GIB)
    assert (policy.cpu_reserve_threads, policy.io_slots, policy.gpu_slots) == (4, 12, 0)
    assert (policy.cpu_psi_limit_percent, policy.memory_psi_limit_percent) == (20, 1)
    assert policy.io_psi_limit_percent == 80


def test_dedicated_leaves_a_sixteenth_and_ignores_cpu_pressure() -> None:
    """A headless worker of 16 GiB keeps 1 GiB free and every thread busy."""
    policy = dedicated(a_profile())

    assert (policy.memory_reserve_bytes, policy.memory_emergency_bytes) == (GIB, 512 * MIB)
    assert (policy.cpu_reserve_threads, policy.io_slots) == (0, 16)
    assert (policy.cpu_psi_limit_percent, policy.memory_psi_limit_percent) == (None, 5)


@pytest.mark.parametrize(("memory_mib", "reserve_mib"), [(8176, 512), (8192, 512), (8208, 513)])
def test_dedicated_leaves_at_least_512_mib(memory_mib: int, reserve_mib: int) -> None:
    """The floor holds up to 8 GiB, a sixteenth above."""
    assert dedicated(a_node(4, memory_mib)).memory_reserve_bytes == reserve_mib * MIB


@pytest.mark.parametrize("name", list(PolicyName))
def test_a_gpu_gets_one_slot_and_an_eighth_in_reserve(name: PolicyName) -> None:
    """A dedicated card of known size; unified memory has no reserve of its own."""
    policy = named(name, a_profile(gpu=a_dedicated_gpu(4 * GIB)))
    unified = named(name, a_profile(gpu=a_uma_gpu()))

    assert (policy.gpu_slots, policy.gpu_memory_reserve_bytes) == (1, 512 * MIB)
    assert (unified.gpu_slots, unified.gpu_memory_reserve_bytes) == (1, 0)


def test_dedicated_is_refused_on_512_mib_and_valid_just_above() -> None:
    """A node that is all reserve has nothing to offer, and the text says so."""
    at, above = a_node(1, 512), a_profile(memory_total_bytes=512 * MIB + 1)

    assert violations(dedicated(at), at) == ("the memory reserve of 0.50 GiB leaves nothing of 0.50 GiB",)
    assert violations(dedicated(above), above) == ()


@given(logical_cpus=st.integers(1, 1024), memory_bytes=st.integers(512 * MIB + 1, 2**50))
def test_both_policies_are_valid_on_every_node(logical_cpus: int, memory_bytes: int) -> None:
    """No machine above 512 MiB is left without a usable policy."""
    profile = a_profile(logical_cpus=logical_cpus, memory_total_bytes=memory_bytes)

    assert [violations(named(name, profile), profile) for name in PolicyName] == [(), ()]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"memory_reserve_bytes": 16 * GIB - 1}, {"memory_reserve_bytes": 16 * GIB}),
        ({"memory_reserve_bytes": 0}, {"memory_reserve_bytes": -1, "memory_emergency_bytes": -1}),
        ({"memory_emergency_bytes": 2 * GIB}, {"memory_emergency_bytes": 2 * GIB + 1}),
        ({"memory_emergency_bytes": 0}, {"memory_emergency_bytes": -1}),
        ({"cpu_reserve_threads": 15}, {"cpu_reserve_threads": 16}),
        ({"cpu_reserve_threads": 0}, {"cpu_reserve_threads": -1}),
        ({"cpu_psi_limit_percent": 100}, {"cpu_psi_limit_percent": 100.01}),
        ({"memory_psi_limit_percent": 0}, {"memory_psi_limit_percent": -0.01}),
        ({"io_psi_limit_percent": 100}, {"io_psi_limit_percent": 101}),
        ({"io_slots": 1}, {"io_slots": 0}),
        ({"gpu_slots": 0}, {"gpu_slots": -1}),
        ({"gpu_memory_reserve_bytes": 0}, {"gpu_memory_reserve_bytes": -1}),
    ],
)
def test_a_policy_is_valid_up_to_each_limit(good: dict[str, Any], bad: dict[str, Any]) -> None:
    """Each rule accepts the last good value and names the first bad one."""
    assert violations(a_policy(**good), a_profile()) == ()
    assert len(violations(a_policy(**bad), a_profile())) >= 1


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"gpu_slots": 1}, {"gpu_slots": 0}),
        (
            {"gpu_slots": 1, "gpu_memory_reserve_bytes": 4 * GIB - 1},
            {"gpu_slots": 1, "gpu_memory_reserve_bytes": 4 * GIB},
        ),
    ],
)
def test_a_gpu_needs_a_slot_and_memory_to_offer(good: dict[str, Any], bad: dict[str, Any]) -> None:
    """Both rules hold only where there is a card."""
    profile = a_profile(gpu=a_dedicated_gpu(4 * GIB))

    assert violations(a_policy(**good), profile) == ()
    assert len(violations(a_policy(**bad), profile)) == 1
