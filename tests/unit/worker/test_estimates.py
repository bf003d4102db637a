"""An item whose memory ran out gets more of it, whatever forms its kind accepts; nobody else does."""

from dataclasses import replace

import pytest

from governor.model import UINT64_MAX, Estimate
from tasks.estimate_forms import EstimateForms
from tests.unit.worker.builders import a_kind
from worker.estimates import admitted_estimate, share_of_peak, with_more_memory

FORM = Estimate(memory_fixed_bytes=100, memory_per_item_bytes=50, max_batch=4, cpu_threads=2, io_slots=1)
OLD = replace(FORM, memory_fixed_bytes=10, cpu_threads=1)
STRICT = a_kind(estimate=FORM, forms=EstimateForms(old=(OLD,)))


@pytest.mark.parametrize(
    ("peaks_bytes", "wanted_bytes"), [([], 225), ([225], 225), ([226, 9], 226), ([0], 225)]
)
def test_the_larger_of_half_more_and_the_largest_peak_is_charged(
    peaks_bytes: list[int], wanted_bytes: int
) -> None:
    """The fixed part and all but the memory stay."""
    larger = with_more_memory(FORM, peaks_bytes)

    assert larger.memory_bytes(1) == wanted_bytes
    assert replace(larger, memory_per_item_bytes=50) == FORM


def test_halves_are_rounded_up_and_nothing_becomes_something() -> None:
    """An estimate that does not grow would die in the same way."""
    assert with_more_memory(Estimate(memory_per_item_bytes=3), []).memory_bytes(1) == 5
    assert with_more_memory(Estimate(), []).memory_bytes(1) == 1


def test_an_item_that_cannot_run_alone_is_charged_for_its_smallest_batch() -> None:
    """Each item of it has its part."""
    larger = with_more_memory(replace(FORM, min_batch=3), [])

    assert larger.memory_bytes(3) >= 375
    assert larger.memory_per_item_bytes == 92


def test_more_than_there_are_numbers_for_stays_a_valid_estimate() -> None:
    """It is refused as too large, not as malformed."""
    assert with_more_memory(Estimate(memory_per_item_bytes=UINT64_MAX), []).is_valid()


@pytest.mark.parametrize(("items", "share_bytes"), [(1, 301), (2, 201), (3, 167)])
def test_items_worked_on_together_share_the_peak_above_the_fixed_part(items: int, share_bytes: int) -> None:
    """Rounded up."""
    assert share_of_peak(FORM, 301, items) == share_bytes


@pytest.mark.parametrize(
    ("changes", "is_admitted"),
    [
        ({}, True),
        ({"memory_per_item_bytes": 51}, True),
        ({"memory_fixed_bytes": 101, "memory_per_item_bytes": 51}, True),
        ({"memory_per_item_bytes": 49}, False),
        ({"memory_fixed_bytes": 99}, False),
        ({"memory_per_item_bytes": 51, "cpu_threads": 3}, False),
        ({"memory_per_item_bytes": 51, "max_batch": 5}, False),
        ({"memory_per_item_bytes": 51, "gpu_slots": 1}, False),
    ],
)
def test_an_estimate_that_a_node_moved_to_may_be_more_ram_than_a_form_and_nothing_else(
    changes: dict[str, int], *, is_admitted: bool
) -> None:
    """A forged one can only ask for more; and a sender's own is accepted as before: exactly."""
    text = replace(FORM, **changes).to_header()

    assert (admitted_estimate(STRICT, text, is_moved=True) is not None) == is_admitted
    assert (admitted_estimate(STRICT, text, is_moved=False) is not None) == (not changes)


def test_what_a_node_moved_to_is_never_taken_for_an_old_form() -> None:
    """That would give the item less than it was moved to."""
    assert admitted_estimate(STRICT, OLD.to_header(), is_moved=False) == FORM
    assert admitted_estimate(STRICT, OLD.to_header(), is_moved=True) == OLD


def test_the_larger_estimate_is_always_admitted() -> None:
    """Of the default, and of an old form, which stands for it."""
    for text in ("", OLD.to_header()):
        base = admitted_estimate(STRICT, text, is_moved=False)
        assert base is not None
        larger = with_more_memory(with_more_memory(base, []), [1000])

        assert admitted_estimate(STRICT, larger.to_header(), is_moved=True) == larger
