"""Tests of how numbers are written for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.wording import grant_line, impossible_line, in_binary_units, memory_line, pressure_line
from tests.unit.governor.builders import GIB, MIB


@pytest.mark.parametrize(
    ("amount_bytes", "text"),
    [
        (0, "0 bytes"),
        (102, "102 bytes"),
        (103, "0.10 KiB"),
        (640 * 1024, "0.62 MiB"),
        (GIB // 10, "102 MiB"),
        (GIB // 10 + 1, "0.10 GiB"),
        (GIB - 1, "0.99 GiB"),
        (10 * GIB - 1, "9.99 GiB"),
        (10 * GIB, "10.0 GiB"),
        (1234 * GIB, "1234 GiB"),
    ],
)
def test_amounts_have_three_figures_and_are_cut_off(amount_bytes: int, text: str) -> None:
    """The unit changes at a tenth, the decimals at ten and a hundred."""
    assert in_binary_units(amount_bytes) == text


@pytest.mark.parametrize(
    ("amount_bytes", "text"), [(GIB, "1.00 GiB"), (GIB + 1, "1.01 GiB"), (10 * GIB - 1, "10.0 GiB")]
)
def test_needs_are_rounded_up(amount_bytes: int, text: str) -> None:
    """One byte more than a round figure reads as more."""
    assert in_binary_units(amount_bytes, rounded_up=True) == text


@given(offered=st.integers(GIB, 64 * GIB), short=st.integers(1, 10))
def test_a_need_that_does_not_fit_never_reads_like_the_offer(offered: int, short: int) -> None:
    """Even one byte short shows."""
    assert in_binary_units(offered + short, rounded_up=True) != in_binary_units(offered)


def test_lines_read_as_documented() -> None:
    """The examples of the documentation, word for word."""
    needed, free, budget = 106 * GIB // 100, 81 * GIB // 100 + 1, 112 * GIB // 10 + 1

    assert memory_line(needed, free, budget) == "needs 1.06 GiB, 0.81 GiB free of 11.2 GiB"
    assert impossible_line(65 * GIB, 48 * GIB) == "needs 65.0 GiB, this node offers at most 48.0 GiB"
    assert impossible_line(3 * GIB, GIB, of_gpu=True).startswith("needs 3.00 GiB of GPU memory, ")
    assert grant_line(8, 15, 8 * GIB, 8 * GIB) == "batch 8, 15 threads, 8.00 GiB of 8.00 GiB free"
    assert grant_line(1, 1, 10 * MIB, GIB) == "batch 1, 1 thread, 10.0 MiB of 1.00 GiB free"
    assert pressure_line("CPU", 36.0, 20) == "CPU pressure 36 % >= 20 %"
