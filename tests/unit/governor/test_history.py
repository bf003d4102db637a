"""Tests of the rings of eight and of the batch they lead to."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.budget import Need
from governor.history import BatchHistory, BatchRecord, adapted_batch
from governor.model import UINT64_MAX, Estimate
from tests.unit.governor.builders import GIB, MIB


def a_record(peak_memory_bytes: int | None, batch: int = 8, reserved_bytes: int = 0) -> BatchRecord:
    """Build a finished batch that used so much; nothing reserved means it used more than that."""
    return BatchRecord(
        batch=batch,
        items=batch,
        duration_ns=1,
        peak_memory_bytes=peak_memory_bytes,
        reserved_bytes=reserved_bytes,
        threads=1,
    )


def adapt(
    records: Sequence[BatchRecord],
    *,
    per_item: int = 100 * MIB,
    fixed: int = 0,
    min_batch: int = 1,
    max_batch: int = 8,
) -> int:
    """Adapt a batch of 100 MiB items, at most 8."""
    estimate = Estimate(min_batch=min_batch, max_batch=max_batch)
    return adapted_batch(estimate, Need(fixed_bytes=fixed, per_item_bytes=per_item), records)


def test_no_history_is_the_static_maximum() -> None:
    """A kind that never ran is not limited."""
    assert adapt([]) == 8


@pytest.mark.parametrize(
    ("peak_mib", "batch"), [(800, 8), (801, 7), (1600, 4), (1601, 3), (8 * 1024, 1), (8 * 10**6, 1)]
)
def test_a_costlier_item_lowers_the_batch(peak_mib: int, batch: int) -> None:
    """The batch times the measured cost stays within the charge of the maximum."""
    assert adapt([a_record(peak_mib * MIB)]) == batch


def test_the_fixed_part_is_taken_off_and_the_rest_rounded_up() -> None:
    """One byte beyond eight times the estimate is a cost above it."""
    at, above = a_record(850 * MIB), a_record(850 * MIB + 1)

    assert (adapt([at], fixed=50 * MIB), adapt([above], fixed=50 * MIB)) == (8, 7)
    assert adapt([a_record(10)], fixed=50 * MIB) == 8


def test_a_batch_within_its_reservation_never_lowers_the_next() -> None:
    """A peak equal to the reservation is within, one byte more is not."""
    within = a_record(1600 * MIB, reserved_bytes=1600 * MIB)
    beyond = a_record(1600 * MIB + 1, reserved_bytes=1600 * MIB)

    assert (adapt([within]), adapt([beyond])) == (8, 3)


def test_a_small_batch_with_a_fixed_part_does_not_lock_the_kind() -> None:
    """The reason for the rule above: one item that used its fixed part is no bad news."""
    record = a_record(150 * MIB, batch=1, reserved_bytes=150 * MIB)

    assert adapt([record], fixed=0) == 8


def test_an_unknown_peak_does_not_adapt() -> None:
    """It takes its place in the ring and teaches nothing about memory."""
    assert adapt([a_record(None)]) == 8
    assert adapt([a_record(1600 * MIB), a_record(None)]) == 4


def test_the_costliest_entry_decides_and_the_minimum_holds() -> None:
    """Eight terrible batches still leave the smallest one allowed."""
    assert adapt([a_record(1000 * MIB), a_record(1600 * MIB)]) == 4
    assert adapt([a_record(8 * GIB)] * 8, min_batch=4) == 4


def test_the_product_is_checked_against_64_bits() -> None:
    """Where the charge of the maximum leaves 64 bits, the answer is 1."""
    costly = [a_record(3, batch=1)]

    assert adapt(costly, per_item=2, max_batch=UINT64_MAX) == 1
    assert adapt(costly, per_item=1, max_batch=UINT64_MAX) == UINT64_MAX // 3
    assert adapt([a_record(2, batch=1)], per_item=2, max_batch=UINT64_MAX) == UINT64_MAX


def test_nothing_per_item_is_the_static_maximum() -> None:
    """There is nothing that a smaller batch would save."""
    assert adapt([a_record(GIB)], per_item=0) == 8


def test_the_ninth_entry_pushes_out_the_first() -> None:
    """Eight good batches flush a bad one; seven do not."""
    history = BatchHistory()
    history.add("a", a_record(1600 * MIB))
    adapted: list[int] = []
    for _ in range(8):
        history.add("a", a_record(800 * MIB))
        adapted.append(adapt(history.of("a")))

    assert adapted == [4] * 7 + [8]
    assert len(history.of("a")) == 8


def test_kinds_do_not_exchange_anything() -> None:
    """What one kind learned is not in another's ring."""
    history = BatchHistory()
    history.add("a", a_record(GIB))

    assert history.of("b") == ()


@given(
    peaks=st.lists(st.one_of(st.none(), st.integers(1, UINT64_MAX)), max_size=8),
    per_item=st.integers(0, UINT64_MAX),
    min_batch=st.integers(1, UINT64_MAX),
    extra=st.integers(0, UINT64_MAX),
)
def test_an_adapted_batch_stays_within_the_estimate(
    peaks: list[int | None], per_item: int, min_batch: int, extra: int
) -> None:
    """Whatever was measured: never below the minimum, never above the maximum."""
    max_batch = min(UINT64_MAX, min_batch + extra)
    records = [a_record(peak) for peak in peaks]

    assert (
        min_batch <= adapt(records, per_item=per_item, min_batch=min_batch, max_batch=max_batch) <= max_batch
    )
