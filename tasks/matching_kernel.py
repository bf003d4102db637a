"""Decides which descriptors of two images match: exact nearest neighbours, ratio test, cross check.

Knows neither store nor jobs. Every result is exact: it depends on the
descriptors alone, not on tile sizes, threads or the BLAS in use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.parameters import Extractor

SIFT_RATIO = 0.80
"""COLMAP's; the 0.70 of the first plan cuts a known set in two (docs/adr/0041)."""
ORB_RATIO = 0.75

# Measured on two 8192-feature sets: these shapes are the fastest whose buffers
# (tile, float copies, the BLAS's own packing) stay below 5 MiB in all.
L2_TILE_ROWS, L2_TILE_COLUMNS = 256, 1024
HAMMING_TILE_ROWS, HAMMING_TILE_COLUMNS = 16, 4096

# A product of uint8 rows of this width is an integer below 2**24 in every
# order of summation, which float32 holds exactly.
MAX_L2_COMPONENTS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Distances between a run of left rows and a run of right rows.

    ``distances`` (rows, columns) is a buffer that the next tile reuses; its
    reader may overwrite it.
    """

    left_start: int
    right_start: int
    distances: NDArray[Any]


def default_ratio(extractor: Extractor) -> float:
    """Return the ratio of nearest to second nearest distance that an extractor's matches must undercut."""
    return ORB_RATIO if extractor == "orb" else SIFT_RATIO


def undercuts(first: NDArray[np.int64], second: NDArray[np.int64], limit: Fraction) -> NDArray[np.bool_]:
    """Tell where first < limit * second, in exact integers."""
    return np.asarray(
        first.astype(object) * limit.denominator < second.astype(object) * limit.numerator, np.bool_
    )


def match_descriptors(
    left: NDArray[np.uint8],
    right: NDArray[np.uint8],
    *,
    extractor: Extractor,
    ratio: float | None = None,
    cross_check: bool = True,
) -> NDArray[np.uint32]:
    """Match two descriptor sets by brute force.

    A left feature matches its nearest right feature (the lowest index among
    equals) if d1 < ratio * d2, where d2 is the second smallest distance; a
    right set of one feature has no d2 and passes. With ``cross_check`` the
    left feature must be the nearest one to its match, too.

    Args:
        left: (N, 128) for SIFT and RootSIFT (L2) or (N, 32) for ORB (Hamming).
        right: (M, 128) or (M, 32).
        extractor: decides the distance and the default ratio.
        ratio: taken as the decimal number it prints as; None = the default.
        cross_check: keep mutual nearest features only.

    Returns:
        (K, 2) indices into left and right, sorted by the left index.

    Raises:
        ValueError: the widths differ or do not suit the distance.
    """
    hamming = extractor == "orb"
    _check_widths(left, right, hamming=hamming)
    if not len(left) or not len(right):
        return np.empty((0, 2), np.uint32)
    nearest = _NearestFeatures(len(left), len(right), np.dtype(np.uint16 if hamming else np.float32))
    for tile in hamming_tiles(left, right) if hamming else squared_l2_tiles(left, right):
        nearest.add(tile, cross_check=cross_check)
    limit = Fraction(str(default_ratio(extractor) if ratio is None else ratio))
    accepted = nearest.distinct(limit if hamming else limit**2)
    if cross_check:
        accepted &= nearest.mutual()
    left_index = np.flatnonzero(accepted)
    return np.column_stack((left_index, nearest.index[left_index])).astype(np.uint32)


def squared_l2_tiles(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> Iterator[Tile]:
    """Yield all squared L2 distances as exact float32 integers.

    |a - b|^2 is one matrix product: (-2a, 1, |a|^2) . (b, |b|^2, 1).
    """
    buffer = np.empty(L2_TILE_ROWS * L2_TILE_COLUMNS, np.float32)
    for right_start in range(0, len(right), L2_TILE_COLUMNS):
        columns = _augmented(right[right_start : right_start + L2_TILE_COLUMNS], scale=1, norm_last=False)
        for left_start in range(0, len(left), L2_TILE_ROWS):
            rows = _augmented(left[left_start : left_start + L2_TILE_ROWS], scale=-2, norm_last=True)
            distances = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            np.matmul(rows, columns.T, out=distances)
            yield Tile(left_start=left_start, right_start=right_start, distances=distances)


def hamming_tiles(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> Iterator[Tile]:
    """Yield all Hamming distances as uint16."""
    left_words = np.ascontiguousarray(left).view(np.uint64)
    right_words = np.ascontiguousarray(np.ascontiguousarray(right).view(np.uint64).T)
    shape = (min(HAMMING_TILE_ROWS, len(left)), min(HAMMING_TILE_COLUMNS, len(right)))
    buffers = (np.empty(shape, np.uint64), np.empty(shape, np.uint8), np.empty(shape, np.uint16))
    for right_start in range(0, len(right), HAMMING_TILE_COLUMNS):
        columns = right_words[:, right_start : right_start + HAMMING_TILE_COLUMNS]
        for left_start in range(0, len(left), HAMMING_TILE_ROWS):
            rows = left_words[left_start : left_start + HAMMING_TILE_ROWS]
            differing, counts, distances = (part[: len(rows), : columns.shape[1]] for part in buffers)
            distances.fill(0)
            for word in range(rows.shape[1]):
                np.bitwise_xor(rows[:, word, None], columns[word], out=differing)
                np.bitwise_count(differing, out=counts)
                np.add(distances, counts, out=distances)
            yield Tile(left_start=left_start, right_start=right_start, distances=distances)


class _NearestFeatures:
    """The running two smallest distances of every left and the nearest of every right feature.

    Tiles must come with rising starts in each direction, so that the first of
    several equal neighbours is the one with the lowest index.
    """

    def __init__(self, left_count: int, right_count: int, dtype: np.dtype[Any]) -> None:
        self._farthest = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
        self._first = np.full(left_count, self._farthest, dtype)
        self._second = np.full(left_count, self._farthest, dtype)
        self.index = np.zeros(left_count, np.intp)
        self._reverse_first = np.full(right_count, self._farthest, dtype)
        self._reverse_index = np.zeros(right_count, np.intp)

    def add(self, tile: Tile, *, cross_check: bool) -> None:
        """Take in one tile; overwrites its distances."""
        if cross_check:
            self._add_columns(tile)
        self._add_rows(tile)

    def _add_columns(self, tile: Tile) -> None:
        distances = tile.distances
        span = slice(tile.right_start, tile.right_start + distances.shape[1])
        smallest = distances.min(axis=0)
        # Few columns improve after the first tiles, so only they are searched
        # for the row; a whole argmin down the columns takes several times longer.
        improved = np.flatnonzero(smallest < self._reverse_first[span])
        if len(improved):
            rows = (distances[:, improved] == smallest[improved]).argmax(axis=0)
            self._reverse_first[span][improved] = smallest[improved]
            self._reverse_index[span][improved] = tile.left_start + rows

    def _add_rows(self, tile: Tile) -> None:
        distances = tile.distances
        span = slice(tile.left_start, tile.left_start + len(distances))
        every_row = np.arange(len(distances))
        columns = distances.argmin(axis=1)
        nearest = distances[every_row, columns]
        distances[every_row, columns] = self._farthest
        first, second, index = self._first[span], self._second[span], self.index[span]
        np.minimum(second, distances.min(axis=1), out=second)
        np.minimum(second, np.maximum(first, nearest), out=second)
        closer = nearest < first
        index[closer] = tile.right_start + columns[closer]
        np.minimum(first, nearest, out=first)

    def distinct(self, limit: Fraction) -> NDArray[np.bool_]:
        """Tell which left features have first < limit * second, in exact integers."""
        if len(self._reverse_first) == 1:
            return np.ones(len(self._first), np.bool_)
        return undercuts(self._first.astype(np.int64), self._second.astype(np.int64), limit)

    def mutual(self) -> NDArray[np.bool_]:
        """Tell which left features are the nearest ones to their own nearest."""
        return np.asarray(self._reverse_index[self.index] == np.arange(len(self.index)), np.bool_)


def _augmented(descriptors: NDArray[np.uint8], *, scale: int, norm_last: bool) -> NDArray[np.float32]:
    """Return float32 rows (scale * d, 1, |d|^2) or (scale * d, |d|^2, 1)."""
    components = descriptors.shape[1]
    rows = np.empty((len(descriptors), components + 2), np.float32)
    values = rows[:, :components]
    values[:] = descriptors
    norm, one = (components + 1, components) if norm_last else (components, components + 1)
    np.einsum("ij,ij->i", values, values, out=rows[:, norm])
    rows[:, one] = 1
    values *= scale
    return rows


def _check_widths(left: NDArray[np.uint8], right: NDArray[np.uint8], *, hamming: bool) -> None:
    if left.dtype != np.uint8 or right.dtype != np.uint8:
        raise ValueError("descriptors are uint8")
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"descriptor widths differ: {left.shape[1]} and {right.shape[1]}")
    if hamming and left.shape[1] % 8:
        raise ValueError("binary descriptors come in whole 64-bit words")
    if not hamming and left.shape[1] > MAX_L2_COMPONENTS:
        raise ValueError(f"L2 descriptors have at most {MAX_L2_COMPONENTS} components")
