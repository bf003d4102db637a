"""Decides the 256-bit code of a descriptor, and the six keys under which an index files it.

No vocabulary and no training: the same descriptor has the same keys on every
machine, for ever. What an index makes of the keys is :mod:`tasks.index_segments`'.
"""

import hashlib
from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tasks.parameters import Extractor

Descriptors = NDArray[np.uint8]
Keys = NDArray[np.uint32]

CODE_BITS = 256
TABLES = 6
KEY_BITS = 24
"""Bit b of the key of table t is code bit (41 t + 11 b) mod 256."""

_TABLE_STEP, _BIT_STEP = 41, 11
_CELLS_PER_SIDE, _DIRECTIONS = 4, 8
_SIFT_COMPONENTS = 128
_CORNER = 2
_SEED = b"tiepoint binary codes 472"
"""How it was chosen: docs/retrieval.md. Changing it changes every index: raise INDEX_VERSION with it."""


def table_keys(descriptors: Descriptors, extractor: Extractor) -> Keys:
    """Return the keys of descriptors: uint32 (n, 6), the table's number in the bits above the key's 24.

    ``descriptors``: uint8 (n, 128) for SIFT and RootSIFT, (n, 32) for ORB.
    """
    picked = code_bits(descriptors, extractor)[:, _KEY_BITS_OF_CODE]
    packed = np.packbits(picked.reshape(len(picked), TABLES, KEY_BITS), axis=2, bitorder="little")
    low, middle, high = (packed[:, :, byte].astype(np.uint32) for byte in range(3))
    tables = np.arange(TABLES, dtype=np.uint32) << np.uint32(KEY_BITS)
    keys: Keys = low | (middle << np.uint32(8)) | (high << np.uint32(16)) | tables
    return keys


def code_bits(descriptors: Descriptors, extractor: Extractor) -> NDArray[np.uint8]:
    """Return the codes of descriptors, one bit per element: uint8 (n, 256) of 0 and 1.

    ORB is a code already (bit i is bit i % 8, lowest first, of byte i // 8).
    A bit of SIFT's tells whether one component is larger than another.
    """
    if extractor == "orb":
        return np.unpackbits(descriptors, axis=1, bitorder="little")
    return (descriptors[:, _COMPARED[:, 0]] > descriptors[:, _COMPARED[:, 1]]).view(np.uint8)


def compared_components() -> NDArray[np.intp]:
    """Return the pairs of SIFT components that the code compares: (256, 2).

    They are drawn by a generator that is written down here in full, not by a
    library's, whose stream may change: for bit 0, 1, 2, ... two components at a
    time from :func:`_draws`, until they are different and comparable, and
    neither is compared by an earlier bit of the same table.
    """
    draws = _draws()
    taken: list[set[int]] = [set() for _ in range(TABLES)]
    pairs: list[tuple[int, int]] = []
    for bit in range(CODE_BITS):
        of_tables = [taken[table] for table in range(TABLES) if bit in _BITS_OF_TABLE[table]]
        pair = next(draws), next(draws)
        while not _are_comparable(*pair) or any(not components.isdisjoint(pair) for components in of_tables):
            pair = next(draws), next(draws)
        pairs.append(pair)
        for components in of_tables:
            components.update(pair)
    return np.array(pairs, np.intp)


def _are_comparable(first: int, second: int) -> bool:
    """Tell whether neither of two components is the larger one by SIFT's making.

    Component = cell * 8 + direction, 4 x 4 cells. The Gaussian window favours
    the four inner cells over the eight at the edges, the turn to the dominant
    orientation favours direction 0; so both must agree in these, up to a
    reflection. The corner cells change most between two photos of one place,
    and are left out. What this is worth: docs/retrieval.md.
    """
    alike = _ring(first) == _ring(second) and _turn(first) == _turn(second)
    return first != second and alike and _ring(first) < _CORNER


def _ring(component: int) -> int:
    """Return 0 for an inner cell, 1 for one at an edge, 2 for a corner."""
    row, column = divmod(component // _DIRECTIONS, _CELLS_PER_SIDE)
    last = _CELLS_PER_SIDE - 1
    return int(row in {0, last}) + int(column in {0, last})


def _turn(component: int) -> int:
    """Return how far a direction is from the dominant one, in steps of 45 degrees."""
    direction = component % _DIRECTIONS
    return min(direction, _DIRECTIONS - direction)


def _draws() -> Iterator[int]:
    """Yield the bytes of SHA-256(seed, counter as 8 bytes big-endian), counter 0, 1, 2, ..., modulo 128."""
    for counter in count():
        digest = hashlib.sha256(_SEED + counter.to_bytes(8, "big")).digest()
        yield from (byte % _SIFT_COMPONENTS for byte in digest)


_BITS_OF_TABLE = [
    [(_TABLE_STEP * table + _BIT_STEP * bit) % CODE_BITS for bit in range(KEY_BITS)]
    for table in range(TABLES)
]
_KEY_BITS_OF_CODE = np.array(_BITS_OF_TABLE, np.intp).reshape(-1)
_COMPARED = compared_components()
