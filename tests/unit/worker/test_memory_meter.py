"""The meter sees what one batch has allocated, in the process that runs it."""

import gc
import mmap
import sys

import pytest

from worker.memory_meter import NOISE_BYTES, RETAINED_LIMIT_BYTES, MemoryMeter, private_bytes, trim_heap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's procfs")
MIB = 1 << 20


def started() -> MemoryMeter:
    """Return a meter at the start of a batch, what other tests have left being gone."""
    gc.collect()
    trim_heap()
    meter = MemoryMeter()
    meter.start()
    return meter


def taken(size_bytes: int) -> mmap.mmap:
    """Return pages that the process did not have before: the heap may hold what other tests have freed."""
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size_bytes, mmap.PAGESIZE):
        pages[offset] = 1
    return pages


@pytest.mark.parametrize("allocated_bytes", [8 * MIB, 64 * MIB])
def test_the_peak_is_what_was_allocated_though_it_was_freed_again(allocated_bytes: int) -> None:
    """Within a MiB of the interpreter's own needs."""
    meter = started()
    taken(allocated_bytes).close()

    assert allocated_bytes <= meter.peak_bytes() + MIB
    assert meter.peak_bytes() <= allocated_bytes + 2 * MIB


def test_a_batch_starts_by_telling_all_that_is_resident() -> None:
    """Whoever hears of the process's death takes it off the kernel's figure, which holds library pages."""
    told: list[int] = []
    meter = MemoryMeter(told.append)
    meter.start()
    with taken(16 * MIB):
        meter.peak_bytes()
        meter.start()

    assert private_bytes() - 16 * MIB < told[0]
    assert 15 * MIB < told[1] - told[0] < 17 * MIB


def test_the_peak_of_a_batch_that_does_nothing_is_unknown() -> None:
    """Noise is not told from nothing."""
    assert started().peak_bytes() == 0


def test_a_new_batch_does_not_inherit_the_peak_of_the_last() -> None:
    """The kernel's mark is reset."""
    meter = started()
    bytearray(b"x") * (64 * MIB)
    first_bytes = meter.peak_bytes()
    meter.start()

    assert first_bytes >= 60 * MIB
    assert meter.peak_bytes() < 8 * MIB


def test_a_child_that_keeps_more_than_the_limit_is_retired() -> None:
    """Just below and just above 32 MiB."""
    meter = started()
    kept = taken(RETAINED_LIMIT_BYTES - 4 * MIB)
    meter.trim()
    is_kept_on = not meter.retains_too_much()
    more = taken(8 * MIB)
    meter.trim()

    assert is_kept_on
    assert meter.retains_too_much()
    assert len(kept) + len(more) > RETAINED_LIMIT_BYTES


def test_what_was_loaded_on_purpose_is_not_held_against_the_child() -> None:
    """Libraries of a kind belong to the warm child."""
    meter = started()
    before_bytes = private_bytes()
    library = bytearray(b"x") * (48 * MIB)
    meter.grow_baseline(before_bytes)
    meter.trim()

    assert not meter.retains_too_much()
    assert len(library) > NOISE_BYTES


def test_what_was_kept_counts_without_trimming_as_well() -> None:
    """The reading of the peak is enough: a slow leak never has a peak of its own."""
    meter = started()
    kept = taken(RETAINED_LIMIT_BYTES + 4 * MIB)
    meter.peak_bytes()

    assert meter.retains_too_much()
    assert len(kept) > RETAINED_LIMIT_BYTES
