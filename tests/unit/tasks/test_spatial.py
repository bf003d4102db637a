"""Neighbours are those taken nearest, within the limit, in one order."""

from pathlib import Path

import numpy as np
import pytest

from tasks.errors import MissingArtefactError
from tasks.spatial import neighbours, read_positions
from tasks.store import Gps, PhotoRecord, Store

METRES_PER_DEGREE = 111_195.08
NAN = float("nan")


def row(*metres_north: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return positions along a meridian."""
    return np.array([(46.0 + metres / METRES_PER_DEGREE, 8.0) for metres in metres_north])


def test_the_nearest_come_first() -> None:
    """On either side; equal distances by position in the list."""
    assert neighbours(row(0, 30, 10, -10, 60), 0, most=3, max_distance_m=100) == [2, 3, 1]


@pytest.mark.parametrize(("farther_metres", "found"), [(10.0004, [1, 2]), (10.0006, [2, 1])])
def test_distances_are_compared_by_the_millimetre(farther_metres: float, found: list[int]) -> None:
    """Less than that depends on the processor; then the position in the list decides."""
    assert neighbours(row(0, farther_metres, 10), 0, most=2, max_distance_m=100) == found


@pytest.mark.parametrize(("metres", "found"), [(99.9, [1]), (100.1, [])])
def test_nobody_is_a_neighbour_beyond_the_limit(metres: float, found: list[int]) -> None:
    """100 m by default."""
    assert neighbours(row(0, metres), 0, most=50, max_distance_m=100) == found


@pytest.mark.parametrize(("most", "found"), [(1, [1]), (2, [1, 2])])
def test_at_most_so_many_are_found(most: int, found: list[int]) -> None:
    """A tight swarm is cut."""
    assert neighbours(row(0, 1, 2, 3)[:3], 0, most=most, max_distance_m=100) == found


def test_the_distance_is_that_along_the_ground() -> None:
    """A degree of longitude is half as long at 60 degrees north."""
    here = np.array([(60.0, 8.0), (60.0, 8.0 + 90 / METRES_PER_DEGREE * 2), (60.0, 8.0 + 0.1)])

    assert neighbours(here, 0, most=5, max_distance_m=90.1) == [1]
    assert neighbours(here, 0, most=5, max_distance_m=89.9) == []


def test_the_date_line_parts_nobody() -> None:
    """Longitudes of 180 and -180 degrees are the same place."""
    here = np.array([(10.0, 179.9999), (10.0, -179.9999)])

    assert neighbours(here, 0, most=5, max_distance_m=100) == [1]


def test_photos_without_a_position_have_no_neighbours() -> None:
    """And are nobody's."""
    positions = np.array([(46.0, 8.0), (NAN, NAN), (46.0, 8.0)])

    assert neighbours(positions, 0, most=5, max_distance_m=100) == [2]
    assert neighbours(positions, 1, most=5, max_distance_m=100) == []


def record(gps: Gps | None) -> PhotoRecord:
    """Return a photo's record."""
    return PhotoRecord(width_px=9, height_px=9, focal_length_px=9.0, focal_is_prior=False, gps=gps)


def test_positions_are_read_once_and_written_down(tmp_path: Path) -> None:
    """Altitude is ignored; who has none is known."""
    store = Store(tmp_path)
    contents = ["a" * 64, "b" * 64]
    store.record_photo(contents[0], record(Gps(latitude_degrees=1.5, longitude_degrees=-2.5, altitude_m=9.0)))
    store.record_photo(contents[1], record(None))
    read = read_positions(store, contents)
    for content in contents:
        store.discard_photo_record(content)

    assert np.array_equal(read, [[1.5, -2.5], [NAN, NAN]], equal_nan=True)
    assert np.array_equal(read_positions(store, contents), read, equal_nan=True)


def test_a_record_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """The photo is imported again before anybody is paired by place."""
    with pytest.raises(MissingArtefactError):
        read_positions(Store(tmp_path), ["a" * 64])


def test_damaged_positions_are_read_from_the_records_again(tmp_path: Path) -> None:
    """The one who meets the damage gives up; the next finds nothing written down."""
    store = Store(tmp_path)
    store.record_photo("a" * 64, record(Gps(latitude_degrees=1.5, longitude_degrees=-2.5, altitude_m=9.0)))
    read_positions(store, ["a" * 64])
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(MissingArtefactError):
        read_positions(store, ["a" * 64])

    assert read_positions(store, ["a" * 64]).tolist() == [[1.5, -2.5]]
