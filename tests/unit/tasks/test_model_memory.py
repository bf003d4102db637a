"""Tests of the mapper's estimate; that it covers the measured peak is tested in tests/acceptance."""

import pytest

from tasks.model_memory import (
    MANY_THREADS,
    MAX_DIRECT_IMAGES,
    REPEATABLE_MAX_OBSERVATIONS,
    MappingSize,
    model_estimate,
)

MIB = 1 << 20


def memory_bytes(size: MappingSize) -> int:
    """Return what a mapping of this size is charged."""
    return model_estimate(size).memory_bytes(batch=1)


def test_each_kind_of_thing_adds_its_term() -> None:
    """The formula, once in figures: 11 photos as the set kermit has."""
    size = MappingSize(images=11, features=90_112, pairs=55, inlier_matches=3_605, largest_photo_px=640 * 480)

    expected = 48 * MIB + 128 * 90_112 + 2048 * 55 + 64 * 3_605 + 1024 * 7_210 + 576 * 121 + 14 * 307_200
    assert memory_bytes(size) == expected


@pytest.mark.parametrize(("inlier_matches", "observations"), [(499, 998), (500, 1000), (501, 1000)])
def test_observations_are_bounded_by_matches_and_by_features(inlier_matches: int, observations: int) -> None:
    """Two per match, but a feature belongs to one point only."""
    size = MappingSize(features=1000, inlier_matches=inlier_matches)

    assert size.max_observations == observations


def test_the_factor_of_the_cameras_stops_growing_where_colmap_iterates() -> None:
    """Beyond 1000 images COLMAP keeps no factor."""
    below, at, above = (memory_bytes(MappingSize(images=MAX_DIRECT_IMAGES + step)) for step in (-1, 0, 1))

    assert below < at == above


@pytest.mark.parametrize(("beyond", "threads"), [(0, 1), (1, MANY_THREADS)])
def test_only_large_projects_trade_repeatable_bytes_for_threads(beyond: int, threads: int) -> None:
    """One thread up to two million observations, many from the next one on."""
    size = MappingSize(
        features=REPEATABLE_MAX_OBSERVATIONS + beyond, inlier_matches=REPEATABLE_MAX_OBSERVATIONS
    )

    assert model_estimate(size).cpu_threads == threads


def test_the_estimate_is_valid_for_nothing_and_for_much() -> None:
    """From an empty project to a million photos."""
    much = MappingSize(
        images=10**6, features=10**10, pairs=10**8, inlier_matches=10**11, largest_photo_px=10**8
    )

    assert model_estimate(MappingSize()).is_valid()
    assert model_estimate(much).is_valid()
