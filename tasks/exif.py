"""Reads what EXIF says about the camera: make, model, focal length, place, date, orientation.

Follows COLMAP (docs of its EXIF reading): the 35 mm equivalent first, then
millimetres with the focal plane's resolution, else 1.2 times the longer side,
not to be trusted. COLMAP's table of sensor widths by camera model is left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import ExifTags, Image
from PIL.ExifTags import IFD, Base

from tasks.pillow import pillow_warnings_ignored
from tasks.store import Gps

DIAGONAL_35MM = 43.27
GUESSED_FOCAL_RATIO = 1.2
_MM_PER_UNIT = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}


@dataclass(frozen=True, slots=True, kw_only=True)
class Focal:
    """A focal length and whether it was measured."""

    length_px: float
    is_prior: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What EXIF says about one photo, missing values as their neutral ones."""

    make: str
    model: str
    focal: Focal
    f35_mm: float | None
    gps: Gps | None
    date: str | None
    orientation: int


def read_shot(exif: Image.Exif, width_px: int, height_px: int) -> Shot:
    """Read the known tags; whatever is absent, damaged or senseless counts as absent."""
    details = _directory(exif, IFD.Exif)
    orientation = exif.get(Base.Orientation)
    return Shot(
        make=_text(exif.get(Base.Make)),
        model=_text(exif.get(Base.Model)),
        focal=focal(details, width_px, height_px),
        f35_mm=_positive(details.get(Base.FocalLengthIn35mmFilm)),
        gps=_gps(_directory(exif, IFD.GPSInfo)),
        date=_text(details.get(Base.DateTimeOriginal)) or _text(exif.get(Base.DateTime)) or None,
        orientation=orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1,
    )


def focal(details: Mapping[int, Any], width_px: int, height_px: int) -> Focal:
    """Return the focal length in pixels (formats.md, section 5: a, b, d).

    ``details`` are the tags of the EXIF directory.
    """
    f35_mm = _positive(details.get(Base.FocalLengthIn35mmFilm))
    if f35_mm is not None:
        return Focal(length_px=f35_mm / DIAGONAL_35MM * math.hypot(width_px, height_px), is_prior=True)
    focal_mm = _positive(details.get(Base.FocalLength))
    per_unit = _positive(details.get(Base.FocalPlaneXResolution))
    mm_per_unit = _MM_PER_UNIT.get(details.get(Base.FocalPlaneResolutionUnit, 0))
    if focal_mm is not None and per_unit is not None and mm_per_unit is not None:
        return Focal(length_px=focal_mm * per_unit / mm_per_unit, is_prior=True)
    return Focal(length_px=GUESSED_FOCAL_RATIO * max(width_px, height_px), is_prior=False)


def _directory(exif: Image.Exif, directory: IFD) -> Mapping[int, Any]:
    try:
        with pillow_warnings_ignored():
            return exif.get_ifd(directory)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, EOFError):
        # A damaged directory costs what it says, not the photo.
        return {}


def _gps(tags: Mapping[int, Any]) -> Gps | None:
    """Return the place only if latitude, longitude and altitude all exist."""
    latitude = _degrees(tags.get(ExifTags.GPS.GPSLatitude), tags.get(ExifTags.GPS.GPSLatitudeRef), "S")
    longitude = _degrees(tags.get(ExifTags.GPS.GPSLongitude), tags.get(ExifTags.GPS.GPSLongitudeRef), "W")
    altitude = _number(tags.get(ExifTags.GPS.GPSAltitude))
    if latitude is None or longitude is None or altitude is None:
        return None
    if abs(latitude) > 90.0 or abs(longitude) > 180.0:
        return None
    is_below_sea = tags.get(ExifTags.GPS.GPSAltitudeRef) in {1, b"\x01"}
    return Gps(
        latitude_degrees=latitude,
        longitude_degrees=longitude,
        altitude_m=-altitude if is_below_sea else altitude,
    )


def _degrees(parts: Any, reference: Any, negative_reference: str) -> float | None:
    """Return signed degrees from degrees, minutes and seconds; None without a reference."""
    if not isinstance(parts, tuple) or len(parts) != 3 or not _text(reference):
        return None
    numbers = [_number(part) for part in parts]
    if any(number is None for number in numbers):
        return None
    value = sum(number / 60.0**power for power, number in enumerate(numbers) if number is not None)
    return -value if _text(reference).upper() == negative_reference else value


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) else None


def _positive(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0.0 else None


def _text(value: Any) -> str:
    """Return a tag's text without padding and control characters."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return ""
    return "".join(letter for letter in text if letter.isprintable()).strip()
