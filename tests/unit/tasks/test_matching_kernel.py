"""The matching kernel equals cv2.BFMatcher, ties included, on every shape."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import matching_kernel
from tasks.matching_kernel import match_descriptors
from tasks.parameters import Extractor
from tests.unit.tasks.brute_force import Descriptors, reference_matches


def random_descriptors(seed: int, count: int, extractor: Extractor, highest: int = 255) -> Descriptors:
    """Return descriptors; a low ``highest`` makes many equal distances."""
    width = 32 if extractor == "orb" else 128
    rng = np.random.default_rng(seed)
    return rng.integers(0, highest + 1, (count, width), dtype=np.uint8)


def noisy_copies(descriptors: Descriptors, seed: int) -> Descriptors:
    """Return the descriptors shuffled, a few components of each one changed."""
    rng = np.random.default_rng(seed)
    copies = rng.permutation(descriptors)
    for row in copies:
        row[rng.integers(0, len(row), 4)] = rng.integers(0, 256, 4)
    return copies


@pytest.mark.parametrize("cross_check", [True, False])
@pytest.mark.parametrize("extractor", ["rootsift", "sift", "orb"])
def test_noisy_copies_match_as_with_the_reference(extractor: Extractor, *, cross_check: bool) -> None:
    """A realistic pair of sets larger than one tile gives the reference's matches."""
    left = random_descriptors(1, 1500, extractor)
    right = np.vstack([noisy_copies(left[:900], 2), random_descriptors(3, 1200, extractor)])
    ratio = matching_kernel.default_ratio(extractor)

    matches = match_descriptors(left, right, extractor=extractor, cross_check=cross_check)

    assert len(matches) >= 890
    assert matches.tolist() == reference_matches(left, right, extractor, ratio, cross_check=cross_check)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    extractor=st.sampled_from(["sift", "orb"]),
    highest=st.integers(0, 3),
    ratio=st.sampled_from([0.5, 0.7, 0.75, 0.9, 0.99, 1.0]),
    cross_check=st.booleans(),
)
def test_sets_full_of_ties_match_as_with_the_reference(
    seed: int,
    counts: tuple[int, int],
    extractor: Extractor,
    highest: int,
    ratio: float,
    *,
    cross_check: bool,
) -> None:
    """Equal distances are decided as the reference decides them: the lowest index wins."""
    left = random_descriptors(seed, counts[0], extractor, highest)
    right = random_descriptors(seed + 1, counts[1], extractor, highest)

    matches = match_descriptors(left, right, extractor=extractor, ratio=ratio, cross_check=cross_check)

    assert matches.tolist() == reference_matches(left, right, extractor, ratio, cross_check=cross_check)


@pytest.mark.parametrize("extractor", ["sift", "orb"])
def test_tile_shapes_do_not_change_the_result(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ties and near ties fall the same way however the work is cut."""
    left, right = (random_descriptors(seed, 150, extractor, highest=1) for seed in (5, 6))
    whole = match_descriptors(left, right, extractor=extractor, ratio=1.0)
    for name in ("L2_TILE_ROWS", "L2_TILE_COLUMNS", "HAMMING_TILE_ROWS", "HAMMING_TILE_COLUMNS"):
        monkeypatch.setattr(matching_kernel, name, 7)

    pieces = match_descriptors(left, right, extractor=extractor, ratio=1.0)

    assert len(whole) > 0
    assert pieces.tolist() == whole.tolist()


def test_largest_distances_are_exact() -> None:
    """The extreme products of float32 stay exact integers: all 255 against all 0 and 254."""
    left = np.full((1, 128), 255, np.uint8)
    right = np.vstack([np.zeros((1, 128)), np.full((1, 128), 254)]).astype(np.uint8)

    tile = next(matching_kernel.squared_l2_tiles(left, right))

    assert tile.distances.tolist() == [[128 * 255**2, 128]]


def test_opposite_binary_descriptors_are_256_bits_apart() -> None:
    """The largest Hamming distance does not wrap around a byte."""
    left, right = np.zeros((1, 32), np.uint8), np.full((1, 32), 255, np.uint8)

    tile = next(matching_kernel.hamming_tiles(left, right))

    assert tile.distances.tolist() == [[256]]


@pytest.mark.parametrize(("nearest", "accepted"), [(8, False), (7, True)])
def test_ratio_is_strict(nearest: int, *, accepted: bool) -> None:
    """A distance of exactly 0.80 times the second is refused, one just below is taken."""
    left = np.zeros((1, 128), np.uint8)
    right = np.zeros((2, 128), np.uint8)
    right[0, 0], right[1, 0] = nearest, 10

    matches = match_descriptors(left, right, extractor="sift")

    assert (matches.tolist() == [[0, 0]]) is accepted


@pytest.mark.parametrize("extractor", ["sift", "orb"])
def test_two_equal_copies_reject_each_other(extractor: Extractor) -> None:
    """A second distance of zero refuses the match."""
    left = random_descriptors(7, 1, extractor)

    matches = match_descriptors(left, np.vstack([left, left]), extractor=extractor, ratio=1.0)

    assert matches.shape == (0, 2)


@pytest.mark.parametrize("extractor", ["sift", "orb"])
def test_single_neighbour_is_accepted(extractor: Extractor) -> None:
    """With one right feature there is no second distance to compare with."""
    left, right = (random_descriptors(seed, 1, extractor) for seed in (8, 9))

    matches = match_descriptors(left, right, extractor=extractor)

    assert matches.tolist() == [[0, 0]]


@pytest.mark.parametrize(("left_count", "right_count"), [(0, 3), (3, 0), (0, 0)])
def test_empty_set_gives_no_matches(left_count: int, right_count: int) -> None:
    """An image without features is a normal input."""
    left, right = (random_descriptors(1, count, "sift") for count in (left_count, right_count))

    matches = match_descriptors(left, right, extractor="sift")

    assert matches.shape == (0, 2)
    assert matches.dtype == np.uint32


@pytest.mark.parametrize(
    ("left", "right", "extractor"),
    [
        (np.zeros((1, 128), np.float32), np.zeros((1, 128), np.uint8), "sift"),
        (np.zeros((1, 128), np.uint8), np.zeros((1, 32), np.uint8), "sift"),
        (np.zeros((1, 129), np.uint8), np.zeros((1, 129), np.uint8), "sift"),
        (np.zeros((1, 33), np.uint8), np.zeros((1, 33), np.uint8), "orb"),
    ],
)
def test_unsuitable_descriptors_are_refused(left: Any, right: Any, extractor: Extractor) -> None:
    """A width or type for which the result would not be exact is an error."""
    with pytest.raises(ValueError, match="descriptor"):
        match_descriptors(left, right, extractor=extractor)
