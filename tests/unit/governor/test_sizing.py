"""Tests of how large an admitted request is, and of what it is said to be limited by."""

from typing import Any

import pytest

from governor.admission import decide
from governor.history import BatchRecord
from governor.model import Decision, DecisionReason, Pressure, Resources, Verdict
from governor.pressure import PressureState
from governor.request import Request
from tests.unit.governor.builders import (
    GIB,
    a_dedicated_gpu,
    a_policy,
    a_profile,
    a_request,
    a_situation,
    a_snapshot,
)

R = DecisionReason


def answer(request: Request, **situation: Any) -> Decision:
    """Decide on an idle, calm node, with changes."""
    return decide(request, a_situation(**situation))[0]


def yellow(**changes: Any) -> dict[str, Any]:
    """Describe a node whose yellow signal was seen on this very snapshot."""
    return {"pressure": PressureState(colour=Pressure.YELLOW, observed_at_ns=0, **changes)}


COSTLY = (
    BatchRecord(
        batch=1,
        items=1,
        duration_ns=1,
        peak_memory_bytes=2 * GIB,
        reserved_bytes=GIB,
        threads=1,
    ),
)


def test_all_that_was_wished_is_a_start_in_full() -> None:
    """Nothing was short, nothing was held back."""
    decision = answer(a_request(cpu_threads=15))

    assert (decision.verdict, decision.reason) == (Verdict.START, R.IN_FULL)
    assert (decision.batch, decision.cpu_threads) == (8, 15)
    assert decision.detail == "batch 8, 15 threads, 8.00 GiB of 8.00 GiB free"


@pytest.mark.parametrize(
    ("available_bytes", "batch", "reason"),
    [
        (10 * GIB, 8, R.IN_FULL),
        (10 * GIB - 1, 7, R.LIMITED_BY_MEMORY),
        (4 * GIB, 2, R.LIMITED_BY_MEMORY),
        (4 * GIB - 1, 0, R.INSUFFICIENT_MEMORY),
    ],
)
def test_memory_lowers_the_batch_to_what_fits(available_bytes: int, batch: int, reason: R) -> None:
    """Down to the smallest batch, then it waits."""
    snapshot = a_snapshot(memory_available_bytes=available_bytes)

    decision = answer(a_request(cpu_threads=1), snapshot=snapshot)

    assert (decision.batch, decision.reason) == (batch, reason)


def test_reserved_memory_is_not_offered_again() -> None:
    """8 GiB are free, 5 of them reserved."""
    decision = answer(a_request(), reserved=Resources(memory_bytes=5 * GIB))

    assert (decision.batch, decision.available_memory_bytes) == (3, 3 * GIB)


@pytest.mark.parametrize(
    ("wished", "reserved", "granted", "reason"),
    [(15, 0, 15, R.IN_FULL), (16, 0, 15, R.LIMITED_BY_THREADS), (8, 14, 1, R.LIMITED_BY_THREADS)],
)
def test_threads_below_the_wish_are_a_reduction(wished: int, reserved: int, granted: int, reason: R) -> None:
    """15 threads are there; one is enough to go on."""
    decision = answer(a_request(cpu_threads=wished), reserved=Resources(cpu_threads=reserved))

    assert (decision.cpu_threads, decision.reason) == (granted, reason)


@pytest.mark.parametrize(
    ("reserved", "granted", "reason"),
    [(6, 2, R.IN_FULL), (7, 1, R.LIMITED_BY_SLOTS), (8, 0, R.SLOTS_BUSY)],
)
def test_io_slots_are_granted_as_far_as_they_go(reserved: int, granted: int, reason: R) -> None:
    """Eight in all, two wished."""
    decision = answer(a_request(cpu_threads=1, io_slots=2), reserved=Resources(io_slots=reserved))

    assert (decision.io_slots, decision.reason) == (granted, reason)


@pytest.mark.parametrize(("reserved", "reason"), [(0, R.IN_FULL), (1, R.SLOTS_BUSY)])
def test_a_gpu_slot_must_be_free(reserved: int, reason: R) -> None:
    """The one slot is free or it is not."""
    decision = answer(
        a_request(cpu_threads=1, gpu_slots=1),
        profile=a_profile(gpu=a_dedicated_gpu()),
        policy=a_policy(gpu_slots=1),
        snapshot=a_snapshot(gpu_memory_available_bytes=GIB),
        reserved=Resources(gpu_slots=reserved),
    )

    assert decision.reason is reason


def test_a_busy_wait_names_what_is_missing() -> None:
    """The first thing of which none is left."""
    decision = answer(a_request(io_slots=1), reserved=Resources(io_slots=8))

    assert decision.sentence() == "WAIT SLOTS_BUSY: no IO slot free, all 8 reserved"


def test_history_lowers_the_batch_and_stays_a_start() -> None:
    """Items cost twice the estimate: half the batch, charged as estimated."""
    decision = answer(a_request(cpu_threads=1), history=COSTLY)

    assert (decision.verdict, decision.reason) == (Verdict.START, R.LIMITED_BY_HISTORY)
    assert (decision.batch, decision.needed_memory_bytes) == (4, 4 * GIB)


def test_yellow_halves_the_batch_that_would_have_been_granted() -> None:
    """From memory's 6 as from history's 4, but not below the minimum."""
    six = {"snapshot": a_snapshot(memory_available_bytes=8 * GIB)}

    assert answer(a_request(), **yellow()).batch == 4
    assert answer(a_request(), **six, **yellow()).batch == 3
    assert answer(a_request(), history=COSTLY, **yellow()).batch == 2
    assert answer(a_request(min_batch=5), **yellow()).batch == 5


def test_halving_alone_is_a_start_and_with_short_memory_a_reduction() -> None:
    """Pressure is no reduction; memory that lowered the batch is one."""
    six = {"snapshot": a_snapshot(memory_available_bytes=8 * GIB)}
    request = a_request(cpu_threads=1)

    assert answer(request, **yellow()).reason is R.LIMITED_BY_PRESSURE
    assert answer(request, **six, **yellow()).reason is R.LIMITED_BY_MEMORY


@pytest.mark.parametrize(
    ("cap", "batch", "reason"),
    [(1, 0, R.PRESSURE_CAP), (2, 2, R.LIMITED_BY_PRESSURE), (8, 8, R.IN_FULL), (16, 8, R.IN_FULL)],
)
def test_the_cap_limits_the_batch_and_a_larger_minimum_waits(cap: int, batch: int, reason: R) -> None:
    """The minimum is 2, the maximum 8."""
    decision = answer(a_request(cpu_threads=1), pressure=PressureState(growth_cap=cap, observed_at_ns=0))

    assert (decision.batch, decision.reason) == (batch, reason)


@pytest.mark.parametrize(
    ("waiting_items", "nodes", "batch"),
    [(16, 2, 8), (15, 2, 8), (14, 2, 7), (5, 2, 3), (4, 2, 2), (1, 2, 2), (0, 1, 2), (6, 0, 6), (100, 1, 8)],
)
def test_the_last_items_of_a_stage_spread_over_the_nodes(waiting_items: int, nodes: int, batch: int) -> None:
    """A node's share, rounded up, within the estimate's limits."""
    decision = answer(a_request(waiting_items=waiting_items, nodes=nodes))

    assert decision.batch == batch


@pytest.mark.parametrize(("waiting_items", "batch"), [(60, 2), (61, 3), (30, 1), (1, 1)])
def test_one_thread_jobs_spread_over_the_cores_too(waiting_items: int, batch: int) -> None:
    """Two nodes of 15 free threads are 30 places."""
    request = a_request(waiting_items=waiting_items, nodes=2, min_batch=1, cpu_threads=1)

    decision = answer(request)

    assert (decision.batch, decision.cpu_threads) == (batch, 1)


@pytest.mark.parametrize(
    ("waiting_items", "per_item_bytes", "threads"),
    [(1, GIB, 12), (2, GIB, 8), (3, GIB, 5), (100, GIB, 2), (100, 3 * GIB, 8), (100, 1, 2), (0, GIB, 12)],
)
def test_threads_are_shared_among_the_batches_that_could_run(
    waiting_items: int, per_item_bytes: int, threads: int
) -> None:
    """15 threads over the items, the memory (8 GiB) or the IO slots (8), whichever is fewest."""
    request = a_request(
        waiting_items=waiting_items,
        memory_per_item_bytes=per_item_bytes,
        min_batch=1,
        max_batch=1,
        cpu_threads=12,
        io_slots=1,
    )

    assert answer(request).cpu_threads == threads


@pytest.mark.parametrize(
    ("waiting_items", "nodes", "threads"),
    [(2, 2, 12), (3, 2, 8), (4, 2, 8), (5, 2, 5), (5, 5, 12), (2, 0, 8)],
)
def test_threads_are_kept_for_a_nodes_own_share_only(waiting_items: int, nodes: int, threads: int) -> None:
    """What the others will take needs no threads here: the last job of each node gets all it can use."""
    request = a_request(
        waiting_items=waiting_items, nodes=nodes, min_batch=1, max_batch=1, cpu_threads=12, io_slots=1
    )

    assert answer(request).cpu_threads == threads


def test_a_job_without_io_is_not_shared_by_io_slots() -> None:
    """It would leave threads idle for slots that it does not want."""
    request = a_request(waiting_items=100, memory_per_item_bytes=1, min_batch=1, max_batch=1, io_slots=0)

    assert answer(request).cpu_threads == 1


def test_sharing_is_a_start() -> None:
    """Fewer items and threads than wished, but nothing was short."""
    decision = answer(a_request(waiting_items=8, nodes=2, cpu_threads=15))

    assert (decision.verdict, decision.reason, decision.batch) == (Verdict.START, R.LIMITED_BY_SHARING, 4)


@pytest.mark.parametrize(
    ("gpu_slots", "gpu_bytes", "threads"), [(1, 0, 15), (3, 0, 5), (3, 512 * 2**20, 8), (3, GIB, 15)]
)
def test_batches_on_a_card_share_its_slots_and_memory(gpu_slots: int, gpu_bytes: int, threads: int) -> None:
    """15 threads over the card's slots or its 1 GiB: threads that no second batch can use are not kept."""
    request = a_request(
        waiting_items=100,
        memory_per_item_bytes=1,
        min_batch=1,
        max_batch=1,
        gpu_slots=1,
        gpu_memory_fixed_bytes=gpu_bytes,
    )

    decision = answer(
        request,
        profile=a_profile(gpu=a_dedicated_gpu()),
        policy=a_policy(gpu_slots=gpu_slots),
        snapshot=a_snapshot(gpu_memory_available_bytes=GIB),
    )

    assert decision.cpu_threads == threads
