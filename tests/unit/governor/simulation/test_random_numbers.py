"""The generator of the simulation: its bits are those of the reference implementation."""

import pytest

from governor.simulation.random_numbers import Pcg32, rotated_left


def test_the_first_numbers_are_the_reference_implementations() -> None:
    """Seed 42, stream 54: what the demonstration program of pcg-random.org prints."""
    generator = Pcg32(42, 54)

    assert [generator.bits_32() for _ in range(6)] == [
        0xA15C02B7,
        0x7B47F409,
        0xBA1D3330,
        0x83D2F293,
        0xBFA4784B,
        0xCBED606E,
    ]


def test_64_bits_come_high_half_first() -> None:
    """Two draws of 32."""
    assert Pcg32(42, 54).bits_64() == 0xA15C02B7_7B47F409


def test_bounded_numbers_stay_below_their_bound_and_reach_all() -> None:
    """Each of six sides, in 200 throws."""
    generator = Pcg32(1, 1)

    assert {generator.below(6) for _ in range(200)} == set(range(6))


def test_a_draw_that_would_favour_small_numbers_is_thrown_away() -> None:
    """2^32 mod (2^31 + 1) is 2^31 - 1: about half of all draws are rejected."""
    generator, raw = Pcg32(42, 54), Pcg32(42, 54)
    bound = 2**31 + 1
    accepted = [bits for bits in (raw.bits_32() for _ in range(20)) if bits >= 2**32 % bound]

    assert [generator.below(bound) for _ in range(5)] == [bits % bound for bits in accepted[:5]]


def test_normal_numbers_have_mean_zero_and_deviation_one() -> None:
    """Over 4,000 draws of a fixed seed."""
    generator = Pcg32(3, 7)
    drawn = [generator.normal() for _ in range(4_000)]

    assert sum(drawn) / len(drawn) == pytest.approx(0, abs=0.05)
    assert sum(value * value for value in drawn) / len(drawn) == pytest.approx(1, abs=0.05)


def test_rotation_brings_high_bits_back_low() -> None:
    """In 64 bits."""
    assert rotated_left(1 << 63 | 1, 17) == 1 << 16 | 1 << 17
