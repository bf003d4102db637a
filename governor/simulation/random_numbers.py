"""Draws reproducible random numbers: PCG32 (XSH-RR 64/32).

Source: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient
Statistically Good Algorithms for Random Number Generation", 2014.
"""

import math

_MULTIPLIER = 6364136223846793005
_MASK_64 = 2**64 - 1
_MASK_32 = 2**32 - 1
_MANTISSA_BITS = 53


class Pcg32:
    """One generator; different streams of one seed are independent."""

    def __init__(self, seed: int, stream: int) -> None:
        self._increment = ((stream * 2) | 1) & _MASK_64
        self._state = 0
        self._step()
        self._state = (self._state + seed) & _MASK_64
        self._step()

    def _step(self) -> None:
        self._state = (self._state * _MULTIPLIER + self._increment) & _MASK_64

    def bits_32(self) -> int:
        """Return 32 random bits."""
        old = self._state
        self._step()
        shifted = (((old >> 18) ^ old) >> 27) & _MASK_32
        rotation = old >> 59
        return ((shifted >> rotation) | (shifted << (-rotation & 31))) & _MASK_32

    def bits_64(self) -> int:
        """Return 64 random bits, the first draw in the high half."""
        high = self.bits_32()
        return (high << 32) | self.bits_32()

    def below(self, bound: int) -> int:
        """Return a number from 0 to bound - 1, each as likely."""
        rejected_below = (2**32 - bound) % bound
        while True:
            drawn = self.bits_32()
            if drawn >= rejected_below:
                return drawn % bound

    def unit(self) -> float:
        """Return a number in [0, 1) with 53 random bits."""
        return (self.bits_64() >> (64 - _MANTISSA_BITS)) / (1 << _MANTISSA_BITS)

    def normal(self) -> float:
        """Return a standard normal number by the polar method; the second of each pair is not used."""
        while True:
            x, y = 2 * self.unit() - 1, 2 * self.unit() - 1
            square = x * x + y * y
            if 0 < square < 1:
                return x * math.sqrt(-2 * math.log(square) / square)


def rotated_left(value: int, bits: int) -> int:
    """Return 64 bits, rotated."""
    return ((value << bits) | (value >> (64 - bits))) & _MASK_64
