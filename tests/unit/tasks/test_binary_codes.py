"""Codes and keys are what their description says, for ever and on every machine."""

import hashlib

import numpy as np
import pytest

from tasks import binary_codes
from tasks.binary_codes import CODE_BITS, KEY_BITS, TABLES, code_bits, compared_components, table_keys

FIRST_PAIRS = [[80, 48], [59, 37], [44, 76]]
TABLE_SHA256 = "6e0d0164bbe2d722347ca19d6a57e80051f685010d79abfce991d2e03663a3b7"


def test_the_compared_components_never_change() -> None:
    """Another table would be another index under the same names."""
    table = compared_components().astype(np.uint8)

    assert table.shape == (256, 2)
    assert table[:3].tolist() == FIRST_PAIRS
    assert hashlib.sha256(table.tobytes()).hexdigest() == TABLE_SHA256


def test_no_component_counts_twice_in_a_key() -> None:
    """Two bits that hang together would make keys meet by chance."""
    compared = compared_components()

    for table in range(TABLES):
        bits = [(41 * table + 11 * bit) % CODE_BITS for bit in range(KEY_BITS)]
        assert len(set(compared[bits].reshape(-1).tolist())) == 2 * KEY_BITS


@pytest.mark.parametrize(
    ("first", "second", "are"),
    [
        ((1, 1, 0), (2, 2, 0), True),  # inner cells, the dominant direction
        ((1, 1, 0), (1, 1, 0), False),  # the same component
        ((0, 1, 3), (1, 3, 5), True),  # edge cells, directions that mirror each other
        ((0, 1, 3), (1, 1, 3), False),  # an edge cell and an inner one
        ((1, 1, 2), (2, 1, 3), False),  # other directions
        ((0, 0, 1), (3, 3, 1), False),  # corner cells
    ],
)
def test_components_are_compared_that_are_alike_by_making(
    first: tuple[int, int, int],
    second: tuple[int, int, int],
    are: bool,  # noqa: FBT001 - a table
) -> None:
    """(row, column, direction) of the 4 x 4 cells with 8 directions."""
    one, other = (row * 32 + column * 8 + direction for row, column, direction in (first, second))

    assert binary_codes._are_comparable(one, other) is are
    assert binary_codes._are_comparable(other, one) is are


def test_a_bit_tells_which_component_is_larger() -> None:
    """Strictly: equal components give 0."""
    first, second = compared_components()[7]
    descriptors = np.zeros((3, 128), np.uint8)
    descriptors[0, first], descriptors[1, second] = 9, 9

    assert code_bits(descriptors, "rootsift")[:, 7].tolist() == [1, 0, 0]


def test_orb_is_a_code_already() -> None:
    """Bit 8 is the lowest of the second byte."""
    descriptors = np.zeros((1, 32), np.uint8)
    descriptors[0, 1] = 1

    assert np.flatnonzero(code_bits(descriptors, "orb")).tolist() == [8]


def test_keys_take_their_bits_from_the_code_as_described() -> None:
    """Bit b of table t is code bit (41 t + 11 b) mod 256; the table stands above."""
    descriptors = np.random.default_rng(0).integers(0, 256, (5, 32), np.uint8)
    bits = code_bits(descriptors, "orb").tolist()

    expected = [
        [
            (table << 24) + sum(code[(41 * table + 11 * bit) % 256] << bit for bit in range(24))
            for table in range(6)
        ]
        for code in bits
    ]
    assert table_keys(descriptors, "orb").tolist() == expected


@pytest.mark.parametrize("extractor", ["sift", "rootsift"])
def test_no_features_have_no_keys(extractor: str) -> None:
    """An image without features is no special case."""
    assert table_keys(np.empty((0, 128), np.uint8), extractor).shape == (0, 6)  # type: ignore[arg-type]
