"""Decides the 256-bit code of a descriptor, and the six keys under which an index files it.

No vocabulary and no training: the same descriptor has the same keys on every
machine, for ever. What an index makes of the keys is :mod:`tasks.index_segments`'.
"""

import hashlib
from collections.abc import Iterator

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
_SIFT_COMPONENTS = 128
_SEED = b"tiepoint binary codes 8"
"""The best of the first twelve (docs/retrieval.md). Changing it changes every index: raise INDEX_VERSION."""


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
    time from :func:`_draws`, until they are two, and neither is compared by an
    earlier bit of a table that this bit belongs to. So no component counts
    twice in a key, which makes keys meet less often by chance (docs/retrieval.md).
    """
    draws = _draws()
    taken: list[set[int]] = [set() for _ in range(TABLES)]
    pairs: list[tuple[int, int]] = []
    for bit in range(CODE_BITS):
        tables = [components for table, components in enumerate(taken) if bit in _BITS_OF_TABLE[table]]
        pair = next(draws), next(draws)
        while pair[0] == pair[1] or any(not components.isdisjoint(pair) for components in tables):
            pair = next(draws), next(draws)
        pairs.append(pair)
        for components in tables:
            components.update(pair)
    return np.array(pairs, np.intp)


def _draws() -> Iterator[int]:
    """Yield the bytes of SHA-256(seed, counter as 8 bytes big-endian), counter 0, 1, 2, ..., modulo 128."""
    counter = 0
    while True:
        yield from (
            byte % _SIFT_COMPONENTS for byte in hashlib.sha256(_SEED + counter.to_bytes(8, "big")).digest()
        )
        counter += 1


_BITS_OF_TABLE = [
    [(_TABLE_STEP * table + _BIT_STEP * bit) % CODE_BITS for bit in range(KEY_BITS)]
    for table in range(TABLES)
]
_KEY_BITS_OF_CODE = np.array(_BITS_OF_TABLE, np.intp).reshape(-1)
_COMPARED = compared_components()
