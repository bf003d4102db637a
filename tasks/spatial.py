"""Decides which photos were taken near each other, from their GPS positions; altitude is ignored.

COLMAP's defaults (50 neighbours, 100 m). Knows no pairs and no jobs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.inputs import read_input, read_photo_record
from tasks.store import Store, artefact_key

POSITIONS_KIND = "photo_positions"
_POSITIONS_VERSION = 1
EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of WGS 84; a sphere is 0.6 % off at most, which a limit in metres does not mind."""
_DISTANCE_STEP_M = 0.001

Positions = NDArray[np.float64]
"""(N, 2): latitude and longitude in degrees; NaN where a photo has none."""


def read_positions(store: Store, contents: Sequence[str]) -> Positions:
    """Return where photos were taken; written down, so that not every job reads every record.

    Raises:
        MissingArtefactError: a photo's record is not there, or was damaged and is discarded now.
    """
    key = artefact_key(POSITIONS_KIND, _POSITIONS_VERSION, {}, contents)
    if not store.has(key):
        store.publish(key, {"degrees": _read_records(store, contents)}, {})
    positions: Positions = read_input(store, key).arrays["degrees"]
    return positions


def neighbours(positions: Positions, source: int, *, most: int, max_distance_m: float) -> list[int]:
    """Return the photos nearest to one, at most ``most`` and within a distance; nearest first.

    Equal distances (to a millimetre) go by position in the list. A photo
    without a position has no neighbours and is nobody's.
    """
    distances_m = _distances_m(positions, source)
    near = np.flatnonzero(distances_m <= max_distance_m)
    near = near[near != source]
    nearest: list[int] = near[np.lexsort((near, distances_m[near]))][:most].tolist()
    return nearest


def _distances_m(positions: Positions, source: int) -> NDArray[np.float64]:
    """Return the distance of every photo along the ground (haversine formula), NaN where unknown."""
    latitudes, longitudes = np.deg2rad(positions).T
    half_chord = (
        np.sin((latitudes - latitudes[source]) / 2) ** 2
        + np.cos(latitudes) * np.cos(latitudes[source]) * np.sin((longitudes - longitudes[source]) / 2) ** 2
    )
    distances_m = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half_chord, 1.0)))
    # The last digit of a sine depends on the processor; millimetres do not.
    rounded: NDArray[np.float64] = np.rint(distances_m / _DISTANCE_STEP_M) * _DISTANCE_STEP_M
    return rounded


def _read_records(store: Store, contents: Sequence[str]) -> Positions:
    places = (read_photo_record(store, content).gps for content in contents)
    degrees = [
        (np.nan, np.nan) if gps is None else (gps.latitude_degrees, gps.longitude_degrees) for gps in places
    ]
    return np.array(degrees, np.float64).reshape(-1, 2)
