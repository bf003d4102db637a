"""Tests of what EXIF says about the camera."""

from collections.abc import Mapping
from typing import Any

import pytest
from PIL import Image
from PIL.ExifTags import IFD, Base

from tasks.exif import read_shot
from tasks.store import Gps

SIZE = {"width_px": 4000, "height_px": 3000}
DIAGONAL_PX = 5000.0
PLACE = {1: "S", 2: (46.0, 30.0, 36.0), 3: "W", 4: (91.0, 0.0, 0.0), 5: 0, 6: 198.5}


def exif(
    details: Mapping[Any, Any] | None = None, gps: Mapping[Any, Any] | None = None, **tags: Any
) -> Image.Exif:
    """Build an EXIF block: top-level tags by name, the EXIF and the GPS directory."""
    block = Image.Exif()
    for name, value in tags.items():
        block[Base[name]] = value
    block.get_ifd(IFD.Exif).update(details or {})
    block.get_ifd(IFD.GPSInfo).update(gps or {})
    return block


def test_the_35_mm_value_comes_first() -> None:
    """(a) f35 / 43.27 times the diagonal, even where millimetres are given too."""
    shot = read_shot(exif({Base.FocalLengthIn35mmFilm: 28, Base.FocalLength: 4.3}), **SIZE)

    assert shot.focal.length_px == pytest.approx(28 / 43.27 * DIAGONAL_PX)
    assert shot.focal.is_prior
    assert shot.f35_mm == 28.0


@pytest.mark.parametrize(("unit", "mm_per_unit"), [(2, 25.4), (3, 10.0), (4, 1.0), (5, 0.001)])
def test_millimetres_need_the_resolution_of_the_focal_plane(unit: int, mm_per_unit: float) -> None:
    """(b) Focal length times pixels per unit."""
    details = {
        Base.FocalLength: 5.0,
        Base.FocalPlaneXResolution: 1000.0 * mm_per_unit,
        Base.FocalPlaneResolutionUnit: unit,
    }
    shot = read_shot(exif(details), **SIZE)

    assert shot.focal.length_px == pytest.approx(5000.0)
    assert shot.focal.is_prior


@pytest.mark.parametrize(
    "details",
    [
        {},
        {Base.FocalLengthIn35mmFilm: 0},
        {Base.FocalLength: 5.0},
        {Base.FocalLength: 5.0, Base.FocalPlaneXResolution: 100.0, Base.FocalPlaneResolutionUnit: 1},
        {Base.FocalLength: "wide", Base.FocalPlaneXResolution: 100.0, Base.FocalPlaneResolutionUnit: 2},
    ],
)
def test_without_a_usable_value_the_focal_length_is_a_guess(details: dict[int, Any]) -> None:
    """(d) 1.2 times the longer side, marked as not to be trusted."""
    shot = read_shot(exif(details), **SIZE)

    assert shot.focal.length_px == pytest.approx(4800.0)
    assert not shot.focal.is_prior


def test_a_place_has_signs() -> None:
    """South and west are negative; so are altitudes below the sea."""
    place = read_shot(exif(gps=PLACE), **SIZE).gps
    below = read_shot(exif(gps={**PLACE, 5: 1}), **SIZE).gps

    assert place == Gps(latitude_degrees=-46.51, longitude_degrees=-91.0, altitude_m=198.5)
    assert below is not None
    assert below.altitude_m == -198.5


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 6])
def test_a_place_needs_latitude_longitude_and_altitude(missing: int) -> None:
    """Two of three numbers are no place."""
    tags = {tag: value for tag, value in PLACE.items() if tag != missing}

    assert read_shot(exif(gps=tags), **SIZE).gps is None


def test_a_place_off_the_globe_is_none() -> None:
    """91 degrees of latitude do not exist."""
    assert read_shot(exif(gps={**PLACE, 2: (91.0, 0.0, 0.0)}), **SIZE).gps is None


def test_camera_and_date_are_plain_text() -> None:
    """Padding and control characters of the camera's firmware are dropped."""
    details = {Base.DateTimeOriginal: "2016:06:23 16:31:59"}
    shot = read_shot(exif(details, Make="DJI\0\0 ", Model=" FC300S"), **SIZE)

    assert (shot.make, shot.model, shot.date) == ("DJI", "FC300S", "2016:06:23 16:31:59")


@pytest.mark.parametrize(("stored", "read"), [(1, 1), (6, 6), (8, 8), (9, 1), (0, 1), ("up", 1)])
def test_an_orientation_is_one_of_eight(stored: Any, read: int) -> None:
    """Anything else counts as upright."""
    assert read_shot(exif(Orientation=stored), **SIZE).orientation == read
