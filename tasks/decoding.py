"""Decides how a photo's pixels become the 8-bit gray picture that features are found in.

Alpha is dropped, palettes and CMYK are converted, deeper channels are
stretched, EXIF orientation is ignored: coordinates belong to the stored
pixels. Whether a photo is worth decoding is checked in :mod:`tasks.containers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tasks.errors import Reason, TasksError
from tasks.pillow import opened_image
from tasks.store import PhotoRecord

Gray = NDArray[np.uint8]

# Rows are converted in strips, so that only one full-size copy stands beside Pillow's own.
STRIP_PIXELS = 1 << 18
# The darkest and brightest thousandth may clip: hot pixels and specks would else set the range.
_CLIPPED_RATIO = 0.001
_DEEP_MODES = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I", "F"})


class DecodingError(TasksError):
    """A photo's pixels cannot be read; carries why."""

    def __init__(self, reason: Reason, cause: str) -> None:
        super().__init__(cause)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionImage:
    """A gray picture, perhaps shrunk, and how its pixels lie in the full one."""

    pixels: Gray
    """uint8, shape (height, width)."""
    full_width_px: int
    full_height_px: int


def decode_gray(path: Path, record: PhotoRecord) -> Gray:
    """Decode a whole photo to 8-bit gray, shape (height, width).

    Raises:
        DecodingError: cut off, damaged, or not of the recorded size.
    """
    try:
        gray = _pillow_gray(path)
        if record.bits_per_channel > 8 and record.mode not in _DEEP_MODES:
            del gray
            gray = _deep_colour_to_gray(path)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, EOFError) as error:
        raise _decoding_error(error) from error
    if gray.shape != (record.height_px, record.width_px):
        raise DecodingError(Reason.UNREADABLE, "its pixels do not have the size that its header states")
    return gray


def shrink(gray: Gray, max_image_size_px: int) -> DetectionImage:
    """Shrink a picture by area averaging so that its longer side fits; never enlarge it."""
    height, width = gray.shape
    ratio = max_image_size_px / max(height, width)
    if ratio >= 1.0:
        return DetectionImage(pixels=gray, full_width_px=width, full_height_px=height)
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    shrunk = np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return DetectionImage(pixels=shrunk, full_width_px=width, full_height_px=height)


def _pillow_gray(path: Path) -> Gray:
    with opened_image(path) as image:
        # Asks libjpeg for the luma channel at full size: a quarter of the
        # memory of RGB and no conversion. It does nothing for other formats.
        image.draft("L", image.size)
        image.load()
        return _stretched_to_gray(image) if image.mode in _DEEP_MODES else _converted_to_gray(image)


def _converted_to_gray(image: Image.Image) -> Gray:
    gray = np.empty((image.height, image.width), dtype=np.uint8)
    for rows in _strips(image.height, image.width):
        strip = image.crop((0, rows.start, image.width, rows.stop))
        gray[rows] = np.asarray(strip.convert("L"))
    return gray


def _stretched_to_gray(image: Image.Image) -> Gray:
    """Stretch one channel of 16 or 32 bits between its clipping percentiles."""
    deep = np.empty((image.height, image.width), dtype=np.float32 if image.mode in "IF" else np.uint16)
    for rows in _strips(image.height, image.width):
        deep[rows] = np.asarray(image.crop((0, rows.start, image.width, rows.stop)))
    return stretch(_levels(deep))


def _levels(deep: NDArray[np.uint16] | NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bring any range of values to 65,536 levels; 16-bit values are their own levels."""
    if deep.dtype == np.uint16:
        return deep.astype(np.uint16, copy=False)
    finite_low, finite_high = float(np.nanmin(deep)), float(np.nanmax(deep))
    if not np.isfinite(finite_high - finite_low):
        raise DecodingError(Reason.UNREADABLE, "its pixels hold infinite values")
    levels = np.zeros(deep.shape, dtype=np.uint16)
    scale = 65_535.0 / max(finite_high - finite_low, float(np.finfo(np.float32).tiny))
    for rows in _strips(*deep.shape):
        levels[rows] = np.nan_to_num((deep[rows] - finite_low) * scale)
    return levels


def stretch(levels: NDArray[np.uint16]) -> Gray:
    """Map 16-bit levels to 0..255, linearly between the 0.1 % and the 99.9 % level."""
    counts = np.zeros(65_536, dtype=np.int64)
    for rows in _strips(*levels.shape):
        counts += np.bincount(levels[rows].reshape(-1), minlength=65_536)
    clipped = int(levels.size * _CLIPPED_RATIO)
    low = int(np.searchsorted(np.cumsum(counts), clipped, side="right"))
    high = 65_535 - int(np.searchsorted(np.cumsum(counts[::-1]), clipped, side="right"))
    span = max(high - low, 1)
    table = np.clip((np.arange(65_536) - low) * 255 // span, 0, 255).astype(np.uint8)
    gray = np.empty(levels.shape, dtype=np.uint8)
    for rows in _strips(*levels.shape):
        gray[rows] = table[levels[rows]]
    return gray


def _deep_colour_to_gray(path: Path) -> Gray:
    """Read 16-bit colour, which Pillow cuts to its upper 8 bits (it has checked the file before)."""
    flags = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imread(str(path), flags)
    if pixels is None or pixels.dtype != np.uint16:
        raise DecodingError(Reason.UNREADABLE, "its 16-bit channels cannot be read")
    return stretch(pixels.astype(np.uint16, copy=False))


def _strips(height: int, width: int) -> Iterator[slice]:
    step = max(1, STRIP_PIXELS // width)
    return (slice(start, min(start + step, height)) for start in range(0, height, step))


def _decoding_error(error: Exception) -> DecodingError:
    text = str(error)
    if "truncated" in text or isinstance(error, EOFError):
        return DecodingError(Reason.TRUNCATED, "its pixel data ends too early")
    return DecodingError(Reason.UNREADABLE, f"its pixel data cannot be decoded ({text})")
