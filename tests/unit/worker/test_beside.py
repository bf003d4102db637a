"""Nothing is started beside a large entry that would put it off; what would not is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.budget import live_budget, most, remaining
from governor.model import Estimate, Grant, Resources
from tests.unit.governor.builders import (
    GIB,
    a_dedicated_gpu,
    a_policy,
    a_profile,
    a_snapshot,
    a_uma_gpu,
)
from worker.beside import Room, could_ever_start, fitted, need_of, room_beside, sum_of

BUDGET = Resources(memory_bytes=100, gpu_memory_bytes=50, cpu_threads=4, gpu_slots=2, io_slots=3)
NOTHING = Resources()
UNBOUNDED = Room(memory_bytes=None, gpu_memory_bytes=None, cpu_threads=4, gpu_slots=None, io_slots=None)


def test_half_of_what_the_entry_leaves_may_be_reserved() -> None:
    """The other half stands for what is charged and used: the live budget counts it twice."""
    room = room_beside(Resources(memory_bytes=60, cpu_threads=1), BUDGET, NOTHING)

    assert room == Room(memory_bytes=20, gpu_memory_bytes=None, cpu_threads=3, gpu_slots=None, io_slots=None)


def test_what_runs_beside_takes_of_the_room() -> None:
    """All of it together must not put the entry off."""
    grant = Grant(batch=1, cpu_threads=2, memory_bytes=15, gpu_memory_bytes=5, gpu_slots=1, io_slots=1)
    need = Resources(memory_bytes=60, gpu_memory_bytes=20, cpu_threads=1, gpu_slots=1, io_slots=1)

    assert room_beside(need, BUDGET, sum_of([grant])) == Room(
        memory_bytes=5, gpu_memory_bytes=10, cpu_threads=1, gpu_slots=0, io_slots=1
    )


def test_beside_an_entry_for_the_whole_node_there_is_no_room() -> None:
    """Nor beside one that needs more than is there today."""
    for memory_bytes in (100, 101):
        assert room_beside(Resources(memory_bytes=memory_bytes), BUDGET, NOTHING).memory_bytes == 0


@given(
    need_bytes=st.integers(1, 100),
    taken_bytes=st.integers(0, 100),
    used_ratio=st.floats(0, 1),
)
def test_an_entry_fits_beside_whatever_the_room_admits(
    need_bytes: int, taken_bytes: int, used_ratio: float
) -> None:
    """As the governor will decide, once what ran before has ended: however much a batch uses."""
    room = room_beside(Resources(memory_bytes=need_bytes), BUDGET, NOTHING)
    charged_bytes = min(taken_bytes, room.memory_bytes or 0)
    policy, profile = a_policy(memory_reserve_bytes=0), a_profile(memory_total_bytes=100)
    snapshot = a_snapshot(memory_available_bytes=100 - int(used_ratio * charged_bytes))
    left = remaining(live_budget(profile, policy, snapshot), Resources(memory_bytes=charged_bytes))

    assert left.memory_bytes >= need_bytes


def test_a_batch_is_made_smaller_to_fit_the_room() -> None:
    """Memory, threads and slots are each lowered to what is left."""
    estimate = Estimate(memory_per_item_bytes=10, max_batch=8, cpu_threads=16, io_slots=4)
    room = replace(UNBOUNDED, memory_bytes=35, cpu_threads=3, io_slots=2)

    assert fitted(estimate, None, room) == replace(estimate, max_batch=3, cpu_threads=3, io_slots=2)


@pytest.mark.parametrize(("left_bytes", "fits"), [(20, True), (19, False)])
def test_the_smallest_batch_must_fit(left_bytes: int, *, fits: bool) -> None:
    """Two items of ten bytes."""
    estimate = Estimate(memory_per_item_bytes=10, min_batch=2, max_batch=8)

    assert (fitted(estimate, None, replace(UNBOUNDED, memory_bytes=left_bytes)) is not None) == fits


@pytest.mark.parametrize(
    "room",
    [
        replace(UNBOUNDED, cpu_threads=0),
        replace(UNBOUNDED, gpu_slots=0),
        replace(UNBOUNDED, io_slots=0),
        replace(UNBOUNDED, gpu_memory_bytes=9),
    ],
)
def test_nothing_starts_without_one_of_each_that_it_needs(room: Room) -> None:
    """The last thread, slot or byte is the entry's."""
    estimate = Estimate(gpu_memory_fixed_bytes=10, gpu_slots=1, io_slots=1)

    assert fitted(estimate, a_dedicated_gpu(), room) is None


def test_what_the_entry_does_not_need_is_not_bounded() -> None:
    """A job for the GPU goes on beside an entry that needs none."""
    estimate = Estimate(gpu_memory_fixed_bytes=10, gpu_slots=1, io_slots=1)
    room = room_beside(need_of(Estimate(memory_fixed_bytes=100), None), BUDGET, NOTHING)

    assert fitted(estimate, a_dedicated_gpu(), room) == estimate


def test_unified_memory_is_bounded_as_memory() -> None:
    """The GPU's bytes are the RAM's."""
    estimate = Estimate(memory_fixed_bytes=10, gpu_memory_fixed_bytes=10, gpu_slots=1)

    assert need_of(estimate, a_uma_gpu()).memory_bytes == 20
    assert fitted(estimate, a_uma_gpu(), replace(UNBOUNDED, memory_bytes=19)) is None


def test_an_invalid_estimate_is_left_to_the_governor() -> None:
    """It has a reason to refuse it with."""
    wrong = Estimate(max_batch=0)

    assert fitted(wrong, None, replace(UNBOUNDED, cpu_threads=0)) == wrong
    assert not could_ever_start(wrong, a_profile(), a_policy())


@pytest.mark.parametrize(("more_bytes", "could"), [(0, True), (1, False)])
def test_what_the_idle_node_has_not_could_never_start(more_bytes: int, *, could: bool) -> None:
    """All but the reserve."""
    profile, policy = a_profile(), a_policy()
    estimate = Estimate(memory_fixed_bytes=most(profile, policy).memory_bytes + more_bytes)

    assert could_ever_start(estimate, profile, policy) == could


@pytest.mark.parametrize(("gpu_bytes", "could"), [(4 * GIB, True), (4 * GIB + 1, False)])
def test_what_the_card_has_not_could_never_start(gpu_bytes: int, *, could: bool) -> None:
    """Nor can anything for a GPU where there is none."""
    estimate = Estimate(gpu_memory_fixed_bytes=gpu_bytes, gpu_slots=1)
    policy = a_policy(gpu_slots=1)

    assert could_ever_start(estimate, a_profile(gpu=a_dedicated_gpu()), policy) == could
    assert not could_ever_start(estimate, a_profile(), a_policy())
