"""Sixteen claims at once on an idle node: at no event is more reserved than the budget that was seen."""

import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from governor.governor import Governor
from governor.ledger import Reservation
from governor.model import Estimate, Resources, Snapshot
from tests.unit.governor.builders import GIB, Machine, a_dedicated_gpu, a_governor, a_policy, a_profile

CLAIMS = 16
ROUNDS = 40
PATIENCE_SECONDS = 60.0
BUDGET = Resources(memory_bytes=8 * GIB, gpu_memory_bytes=3 * GIB, cpu_threads=15, gpu_slots=3, io_slots=5)
"""Of 10 GiB available 2 are kept back, of 16 CPUs one, of 3.5 GiB of GPU memory half a GiB."""


@pytest.fixture(autouse=True)
def _threads_that_take_turns_all_the_time() -> Iterator[None]:
    """Let a thread be interrupted between any two steps; by default it has 5 ms, many claims' worth."""
    before_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_seconds)


def an_idle_governor(machine: Machine) -> Governor:
    """Build the governor of a node with :data:`BUDGET`."""
    policy = a_policy(gpu_slots=3, io_slots=5, gpu_memory_reserve_bytes=GIB // 2)
    return a_governor(machine, a_profile(gpu=a_dedicated_gpu()), policy)


def some_estimate(chance: random.Random) -> Estimate:
    """Draw an estimate of which a few fit at a time; a third of them want the GPU."""
    gpu_bytes = chance.choice([0, 0, chance.randint(1, GIB)])
    return Estimate(
        memory_fixed_bytes=chance.randint(0, GIB),
        memory_per_item_bytes=chance.randint(1, GIB),
        gpu_memory_per_item_bytes=gpu_bytes,
        gpu_slots=chance.randint(1, 2) if gpu_bytes else 0,
        max_batch=chance.randint(1, 4),
        cpu_threads=chance.randint(1, 4),
        io_slots=chance.randint(0, 2),
    )


class Events:
    """Keeps what was reserved at every change of the books, looked up by the thread that made it."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self.reserved: list[Resources] = []
        governor.subscribe(self._look)

    def _look(self) -> None:
        self._governor.check()
        self.reserved.append(self._governor.availability().reserved)


def claim_at_once(governor: Governor, snapshot: Snapshot, estimates: list[Estimate]) -> list[Reservation]:
    """Reserve for all estimates at the same time, each in a thread of its own; return what was granted."""
    barrier = threading.Barrier(len(estimates))

    def claim(estimate: Estimate) -> Reservation | None:
        barrier.wait(PATIENCE_SECONDS)
        return governor.reserve(snapshot, estimate, "a")[1]

    with ThreadPoolExecutor(len(estimates)) as pool:
        return [reservation for reservation in pool.map(claim, estimates) if reservation is not None]


def is_within_budget(reserved: Resources) -> bool:
    """Compare each amount with :data:`BUDGET`."""
    return (
        reserved.memory_bytes <= BUDGET.memory_bytes
        and (reserved.gpu_memory_bytes or 0) <= (BUDGET.gpu_memory_bytes or 0)
        and reserved.cpu_threads <= BUDGET.cpu_threads
        and reserved.gpu_slots <= BUDGET.gpu_slots
        and reserved.io_slots <= BUDGET.io_slots
    )


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_sixteen_claims_at_once_never_exceed_the_budget(seed: int) -> None:
    """From idle, on one snapshot; each is decided on what the others have left."""
    chance = random.Random(seed)
    machine = Machine()
    governor = an_idle_governor(machine)
    events = Events(governor)
    snapshot = machine.look(gpu_memory_available_bytes=7 * GIB // 2)
    granted = claim_at_once(governor, snapshot, [some_estimate(chance) for _ in range(CLAIMS)])
    most = governor.availability().reserved

    assert 1 < len(granted) < CLAIMS
    assert len(events.reserved) == len(granted)
    assert all(is_within_budget(reserved) for reserved in [*events.reserved, most])
    assert all(governor.release(reservation) for reservation in granted)
    assert events.reserved[-1] == Resources()
