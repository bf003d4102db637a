"""What is matched with a device's distances is what the CPU matches, whatever the device does."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks import gpu_matching_kernel
from tasks.gpu_matching import KINDS
from tasks.gpu_matching_kernel import QUERY_ROWS, check_device, match_orb_on_gpu
from tasks.matching_kernel import match_descriptors
from tasks.opencl import Neighbours, OpenClError
from tests.opencl_device import needs_pocl, run_on_device

Descriptors = NDArray[np.uint8]
Sets = tuple[Descriptors, Descriptors]
Device = Callable[[NDArray[np.float32], NDArray[np.float32]], Neighbours]


def random_sets(left: int, right: int, bits: int = 8) -> Sets:
    """Return descriptors whose bytes differ in their lowest bits only: the fewer, the more ties."""
    rng = np.random.default_rng(left + right)
    return (
        rng.integers(0, 1 << bits, (left, 32), np.uint8),
        rng.integers(0, 1 << bits, (right, 32), np.uint8),
    )


def drawn_from_few(left: int, right: int) -> Sets:
    """Return sets in which every descriptor stands many times."""
    few, _ = random_sets(30, 1)
    rng = np.random.default_rng(1)
    return few[rng.integers(0, 30, left)], few[rng.integers(0, 30, right)]


def seen_again(count: int) -> Sets:
    """Return a set, and the same in another order with a few bits flipped in every second."""
    left, _ = random_sets(count, 1)
    right = left[np.random.default_rng(2).permutation(count)]
    right[::2, 3] ^= 0b101
    return left, right


def of_few_bits(left: int, right: int) -> Sets:
    """Return descriptors that differ in ten bits at most: nearly every distance is a tie."""
    rng = np.random.default_rng(3)
    sets = np.zeros((left + right, 32), np.uint8)
    sets[:, 31] = rng.integers(0, 256, len(sets))
    sets[:, 0] = rng.integers(0, 4, len(sets))
    return sets[:left], sets[left:]


SIDES = ("left", "right")
SETS = {
    "random": random_sets(300, 280),
    "seen-again": seen_again(257),
    "doubles": drawn_from_few(200, 150),
    "few-bits": of_few_bits(260, 250),
    "one-bit-per-byte": random_sets(150, 160, bits=1),
    "more-than-a-portion": (seen_again(QUERY_ROWS + 9)[0], seen_again(QUERY_ROWS + 9)[1][:200]),
    "one-right": random_sets(20, 1),
    "one-left": random_sets(1, 20),
    "one-each": random_sets(1, 1),
    "two-each": random_sets(2, 2),
    "no-left": random_sets(0, 5),
    "no-right": random_sets(5, 0),
}


def on_cpu(sets: Sets, ratio: float | None = None, *, cross_check: bool = True) -> list[list[int]]:
    """Return what the CPU matches."""
    found = match_descriptors(*sets, extractor="orb", ratio=ratio, cross_check=cross_check)
    pairs: list[list[int]] = found.tolist()
    return pairs


def unpacked(packed: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the bits that a device is given."""
    return np.unpackbits(packed.astype("<u4").view(np.uint8), axis=1)


def a_device(*, tie_break: int = 1, skipped: int = 0) -> Device:
    """Build a device that orders ties by index, or with -1 the other way round; it may miss the nearest."""

    def find(query: NDArray[np.float32], train: NDArray[np.float32]) -> Neighbours:
        distances = np.abs(unpacked(query)[:, None].astype(int) - unpacked(train)[None]).sum(axis=2)
        count = min(2, len(train))
        keys = distances * 100_000 + tie_break * np.arange(len(train))
        indices = np.argsort(keys, axis=1)[:, skipped:][:, :count]
        return Neighbours(indices=indices, distances=np.take_along_axis(distances, indices, axis=1))

    return find


def columns_of(found: Neighbours, *columns: int) -> Neighbours:
    """Return the nearest and the second nearest in another order."""
    picked = list(columns)
    return Neighbours(indices=found.indices[:, picked], distances=found.distances[:, picked])


def use(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function stand for the device."""
    monkeypatch.setattr(gpu_matching_kernel, "two_nearest", device)


RATIOS = (None, 0.9, 1.0)
_MATCH_ALL = """
import json, sys
import numpy as np
from tasks.gpu_matching_kernel import match_orb_on_gpu
from tasks.opencl import opencl

cases = json.loads(sys.argv[2])
with np.load(sys.argv[1]) as sets, opencl():
    found = [
        match_orb_on_gpu(sets[f"{name} left"], sets[f"{name} right"], ratio=ratio, cross_check=cross_check)
        for name, ratio, cross_check in cases
    ]
print(json.dumps([[str(pairs.dtype), pairs.shape[1], pairs.tolist()] for pairs in found]))
"""


@needs_pocl
def test_a_real_device_matches_what_the_cpu_matches(tmp_path: Path) -> None:
    """Every byte, with every sort of tie, with any ratio, one-sided and mutual."""
    cases = list(product(SETS, RATIOS, (True, False)))
    arrays = {f"{name} {side}": array for name in SETS for side, array in zip(SIDES, SETS[name], strict=True)}
    np.savez(tmp_path / "sets.npz", **arrays)  # type: ignore[arg-type]  # the stubs mean one of its options
    found = run_on_device(_MATCH_ALL, tmp_path / "sets.npz", json.dumps(cases))
    expected = [on_cpu(SETS[name], ratio, cross_check=cross_check) for name, ratio, cross_check in cases]

    for case, of_device, pairs in zip(cases, found, expected, strict=True):
        assert of_device == ["uint32", 2, pairs], case


def test_these_sets_have_matches_and_ties_to_decide() -> None:
    """The tests here compare more than nothing with nothing."""
    assert {name for name, sets in SETS.items() if not on_cpu(sets, 1.0)} == {"no-left", "no-right"}
    assert len(on_cpu(SETS["few-bits"], 1.0, cross_check=False)) > len(on_cpu(SETS["few-bits"], 1.0))


@pytest.mark.parametrize("tie_break", [1, -1], ids=["lowest-first", "highest-first"])
@pytest.mark.parametrize("name", ["doubles", "few-bits", "one-bit-per-byte", "two-each"])
def test_the_order_in_which_a_device_finds_equals_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, tie_break: int
) -> None:
    """Ties are decided by us."""
    use(a_device(tie_break=tie_break), monkeypatch)

    assert match_orb_on_gpu(*SETS[name], ratio=1.0).tolist() == on_cpu(SETS[name], 1.0)


@pytest.mark.parametrize("tie_break", [1, -1], ids=["lowest-first", "highest-first"])
def test_of_two_equally_near_left_features_the_first_keeps_the_match(
    monkeypatch: pytest.MonkeyPatch, tie_break: int
) -> None:
    """Both are one bit away from the only right feature that is near."""
    left, right = np.zeros((3, 32), np.uint8), np.zeros((2, 32), np.uint8)
    left[0], left[1, 0], left[2, 0], right[1] = 0b1010101, 1, 2, 255
    use(a_device(tie_break=tie_break), monkeypatch)

    assert match_orb_on_gpu(left, right).tolist() == [[1, 0]]


@pytest.mark.parametrize(("ratio", "count"), [(0.75, 0), (0.7500000000000001, 1)])
def test_the_ratio_is_an_exact_fraction(monkeypatch: pytest.MonkeyPatch, ratio: float, count: int) -> None:
    """Distances of 3 and 4 bits: 3 < 0.75 * 4 does not hold."""
    left, right = np.zeros((1, 32), np.uint8), np.zeros((2, 32), np.uint8)
    right[0, 9], right[1, 31] = 0b111, 0b1111
    use(a_device(), monkeypatch)

    assert len(match_orb_on_gpu(left, right, ratio=ratio)) == count


@pytest.mark.parametrize("ratio", [1.01, 0.0])
def test_a_ratio_out_of_range_is_refused(ratio: float) -> None:
    """Above 1, what is accepted could have two nearest neighbours."""
    with pytest.raises(ValueError, match="not within 0 to 1"):
        match_orb_on_gpu(*SETS["random"], ratio=ratio)


def test_descriptors_of_another_width_are_refused() -> None:
    """SIFT's are wider."""
    wide = np.zeros((2, 128), np.uint8)

    with pytest.raises(ValueError, match="ORB descriptors are 32 bytes"):
        match_orb_on_gpu(wide, wide)


def with_value(values: NDArray[np.int64], column: int, value: int) -> NDArray[np.int64]:
    """Return values of which that of the fourth feature is another."""
    spoilt = values.copy()
    spoilt[3, column] = value
    return spoilt


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda found: replace(found, distances=with_value(found.distances, 1, 9)), "wrong distances"),
        (lambda found: replace(found, indices=with_value(found.indices, 0, -1)), "that there are not"),
        (lambda found: replace(found, indices=with_value(found.indices, 0, 280)), "that there are not"),
        (lambda found: columns_of(found, 0, 0), "out of order"),
        (lambda found: columns_of(found, 1, 0), "out of order"),
    ],
    ids=["wrong-distance", "index-below", "index-above", "one-twice", "farther-first"],
)
def test_what_a_lost_device_leaves_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Neighbours], Neighbours], told: str
) -> None:
    """The bits of what was found are counted again."""
    use(lambda query, train: spoil(a_device()(query, train)), monkeypatch)

    with pytest.raises(OpenClError, match=told):
        match_orb_on_gpu(*SETS["random"])


def test_the_check_notices_a_device_that_misses_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it finds is there, with the right distances."""
    use(a_device(), monkeypatch)
    check_device()
    use(a_device(skipped=1), monkeypatch)

    with pytest.raises(OpenClError, match="missed nearer neighbours"):
        check_device()


@pytest.mark.parametrize("start", [0, 130, 295])
def test_a_device_that_misses_the_nearest_of_a_run_of_features_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """Five of 300 in a row hold a feature of the sample, wherever they are; the distances are true."""
    run = slice(start, start + 5)

    def find(query: NDArray[np.float32], train: NDArray[np.float32]) -> Neighbours:
        found, farther = a_device()(query, train), a_device(skipped=1)(query, train)
        found.indices[run], found.distances[run] = farther.indices[run], farther.distances[run]
        return found

    use(find, monkeypatch)

    with pytest.raises(OpenClError, match="missed nearer neighbours"):
        match_orb_on_gpu(*SETS["random"])


def test_the_check_compares_whole_results_with_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what no sample has seen: here nothing is verified but the result."""
    monkeypatch.setattr(gpu_matching_kernel, "_check_sample", lambda *_: None)
    use(a_device(skipped=1), monkeypatch)

    with pytest.raises(OpenClError, match="something else than the CPU"):
        check_device()


_SWITCH = """
import json
import cv2
import numpy as np
from tasks.gpu_matching import usable_device
from tasks.opencl import OpenClError, opencl, two_nearest

few = np.zeros((3, 11), np.float32)
seen = {"device": usable_device()}
with opencl():
    seen["inside"] = cv2.ocl.useOpenCL()
seen["after"] = cv2.ocl.useOpenCL()
try:
    two_nearest(few, few)
except OpenClError as error:
    seen["outside"] = str(error)
try:
    with opencl():
        raise OpenClError
except OpenClError:
    seen["after an error"] = cv2.ocl.useOpenCL()
print(json.dumps(seen))
"""


@needs_pocl
def test_the_device_is_used_inside_the_block_only() -> None:
    """Outside OpenCV computes nothing in its place, so a device that is lost on the way is noticed."""
    seen = run_on_device(_SWITCH)

    assert seen.pop("device")
    assert "Assertion failed" in seen.pop("outside")
    assert seen == {"inside": True, "after": False, "after an error": False}


def test_what_is_on_the_device_at_a_time_fits_the_gpu_memory_that_is_reserved() -> None:
    """All right features, a portion of left ones, and two indices and distances for each of those."""
    feature_bytes, found_bytes = 11 * 4, 2 * (4 + 4)
    needed_bytes = (8192 + QUERY_ROWS) * feature_bytes + QUERY_ROWS * found_bytes

    assert needed_bytes <= KINDS[0].estimate.gpu_memory_fixed_bytes
    assert needed_bytes + QUERY_ROWS * (feature_bytes + found_bytes) > 640 << 10
