"""Decides which ORB descriptors match, with the distances found by the GPU: the same as on the CPU.

A device may order equal neighbours as it likes. That changes nothing here:
what the ratio test accepts has a single nearest neighbour, and where two left
features are equally near to a right one, the CPU looks which has the lower
index. Does not cover how OpenCL is switched on (:mod:`tasks.opencl`).
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tasks.matching_kernel import default_ratio, hamming_tiles, match_descriptors, undercuts
from tasks.opencl import Neighbours, OpenClError, two_nearest

ORB_BYTES = 32
QUERY_ROWS = 4096
"""So many left features are on the device at a time, beside all right ones: at
8192 features they and what is found for them take 592 KiB."""
_BYTES_PER_NUMBER = 3
"""float32 holds integers of 24 bits."""
_COLUMNS = -(-ORB_BYTES // _BYTES_PER_NUMBER)
_CHECKED_FEATURES = 96
_SAMPLED_FEATURES = 64
"""About 1 % of the CPU's work for 8192 features: 2 ms."""


def match_orb_on_gpu(
    left: NDArray[np.uint8], right: NDArray[np.uint8], *, ratio: float | None = None, cross_check: bool = True
) -> NDArray[np.uint32]:
    """Match two ORB sets as :func:`tasks.matching_kernel.match_descriptors` does, byte for byte.

    For use inside :func:`tasks.opencl.opencl`.

    Args:
        left: (N, 32).
        right: (M, 32).
        ratio: above 0, at most 1; None = the default.
        cross_check: keep mutual nearest features only.

    Returns:
        (K, 2) indices into left and right, sorted by the left index.

    Raises:
        OpenClError: the device has failed, or its distances are wrong.
        ValueError: the descriptors are not of ORB, or the ratio is out of range.
    """
    limit = _limit(ratio)
    _check_form(left, right)
    if not len(left) or not len(right):
        return np.empty((0, 2), np.uint32)
    forward = _neighbours(left, right)
    matched = np.flatnonzero(_distinct(forward, limit))
    pairs = np.column_stack((matched, forward.indices[matched, 0]))
    if cross_check and len(pairs):
        pairs = pairs[_mutual(pairs, left, right)]
    return pairs.astype(np.uint32)


def check_device() -> None:
    """Match small sets full of equal neighbours on the device and on the CPU; for use as the above.

    Raises:
        OpenClError: the device has failed, or the results differ.
    """
    left, right = _hard_sets()
    for cross_check in (False, True):
        found = match_orb_on_gpu(left, right, ratio=1.0, cross_check=cross_check)
        expected = match_descriptors(left, right, extractor="orb", ratio=1.0, cross_check=cross_check)
        if not np.array_equal(found, expected):
            raise OpenClError("the device computes something else than the CPU")


def _hard_sets() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return sets with doubles within and across, and many equal distances."""
    rng = np.random.default_rng(0)
    left = rng.integers(0, 256, (_CHECKED_FEATURES, ORB_BYTES), np.uint8)
    left[1::2, : ORB_BYTES - 1] = left[0, : ORB_BYTES - 1]
    right = np.roll(left, 7, axis=0)
    right[::3, 0] ^= 1
    return left, np.concatenate((right, left[:5]))


def _neighbours(query: NDArray[np.uint8], train: NDArray[np.uint8]) -> Neighbours:
    """Find the two nearest of each row, in portions that the device's reserved memory holds."""
    packed = _packed(train)
    starts = range(0, len(query), QUERY_ROWS)
    found = [two_nearest(_packed(query[start : start + QUERY_ROWS]), packed) for start in starts]
    neighbours = Neighbours(
        indices=np.concatenate([part.indices for part in found]),
        distances=np.concatenate([part.distances for part in found]),
    )
    _check_distances(neighbours, query, train)
    _check_sample(neighbours, query, train)
    return neighbours


def _packed(descriptors: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the 256 bits of each descriptor as 11 integers of 24 bits."""
    padded = np.zeros((len(descriptors), _COLUMNS * _BYTES_PER_NUMBER), np.uint8)
    padded[:, :ORB_BYTES] = descriptors
    octets = padded.reshape(len(descriptors), _COLUMNS, _BYTES_PER_NUMBER).astype(np.uint32)
    return (octets[:, :, 0] | octets[:, :, 1] << 8 | octets[:, :, 2] << 16).astype(np.float32)


def _check_distances(neighbours: Neighbours, query: NDArray[np.uint8], train: NDArray[np.uint8]) -> None:
    """Count the bits once more for what was found: a lost device may leave anything in its memory."""
    indices, distances = neighbours.indices, neighbours.distances
    if indices.min() < 0 or indices.max() >= len(train):
        raise OpenClError("the device has found features that there are not")
    for found, told in zip(indices.T, distances.T, strict=True):
        if not np.array_equal(_differing_bits(query, train[found]), told):
            raise OpenClError("the device has found wrong distances")
    is_doubled = indices.shape[1] > 1 and bool((indices[:, 0] == indices[:, -1]).any())
    if is_doubled or bool((distances[:, 0] > distances[:, -1]).any()):
        raise OpenClError("the device has found neighbours out of order")


def _check_sample(neighbours: Neighbours, query: NDArray[np.uint8], train: NDArray[np.uint8]) -> None:
    """Compare some rows, spread over all, with every train row: nothing may be nearer than what was found.

    After :func:`_check_distances`: below the second distance there is the nearest, or with a tie nothing.
    """
    rows = np.unique(np.linspace(0, len(query) - 1, _SAMPLED_FEATURES).astype(np.intp))
    first, second = neighbours.distances[rows, 0], neighbours.distances[rows, -1]
    nearer = np.zeros(len(rows), np.intp)
    for tile in hamming_tiles(query[rows], train):
        span = slice(tile.left_start, tile.left_start + len(tile.distances))
        nearer[span] += (tile.distances < second[span, None]).sum(axis=1)
    if not np.array_equal(nearer, first < second):
        raise OpenClError("the device has missed nearer neighbours")


def _differing_bits(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.asarray(np.bitwise_count(one ^ other).sum(axis=1, dtype=np.int64), np.int64)


def _distinct(forward: Neighbours, limit: Fraction) -> NDArray[np.bool_]:
    if forward.distances.shape[1] == 1:
        return np.ones(len(forward.distances), np.bool_)
    return undercuts(forward.distances[:, 0], forward.distances[:, 1], limit)


def _mutual(pairs: NDArray[np.intp], left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Tell in which pairs the left feature is the nearest to the right one, of equals the lowest."""
    backward = _neighbours(right, left)
    nearest = backward.indices[:, 0].copy()
    if backward.distances.shape[1] > 1:
        wanted = np.unique(pairs[:, 1])
        tied = wanted[backward.distances[wanted, 0] == backward.distances[wanted, 1]]
        nearest[tied] = _lowest(left, right[tied], backward.distances[tied, 0])
    return np.asarray(nearest[pairs[:, 1]] == pairs[:, 0], np.bool_)


def _lowest(
    left: NDArray[np.uint8], right: NDArray[np.uint8], distances: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return for each right feature the first left one at its given distance."""
    lowest = np.full(len(right), len(left), np.intp)
    for tile in hamming_tiles(left, right) if len(right) else ():
        span = slice(tile.right_start, tile.right_start + tile.distances.shape[1])
        is_there = tile.distances == distances[span]
        rows = np.where(is_there.any(axis=0), tile.left_start + is_there.argmax(axis=0), len(left))
        np.minimum(lowest[span], rows, out=lowest[span])
    return lowest


def _limit(ratio: float | None) -> Fraction:
    limit = Fraction(str(default_ratio("orb") if ratio is None else ratio))
    if not 0 < limit <= 1:
        raise ValueError(f"a ratio of {ratio} is not within 0 to 1")
    return limit


def _check_form(*sets: NDArray[np.uint8]) -> None:
    if any(descriptors.dtype != np.uint8 or descriptors.shape[1] != ORB_BYTES for descriptors in sets):
        raise ValueError(f"ORB descriptors are {ORB_BYTES} bytes each")
