"""Tests of decoding photos to gray and shrinking them."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tasks.decoding import DecodingError, Gray, decode_gray, shrink, stretch
from tests.unit.tasks.photo_builders import encoded, photo_in_store, store_at, textured

GRAY = textured(120, 80)
COLOUR = np.stack([GRAY, GRAY, GRAY], axis=2)


def decoded(folder: Path, content: bytes) -> Gray:
    """Import an image file's bytes and decode it."""
    store = store_at(folder)
    photo = photo_in_store(store, folder, content)
    return decode_gray(store.photo_path(photo), store.photo_record(photo))


@pytest.mark.parametrize(
    ("image_format", "mode", "options"),
    [
        ("PNG", "L", {}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "LA", {}),
        ("PNG", "P", {}),
        ("TIFF", "CMYK", {}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
        ("BMP", "RGB", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("JPEG", "L", {"quality": 95}),
        ("JPEG", "RGB", {"quality": 95}),
        ("JPEG", "RGB", {"quality": 95, "progressive": True}),
        ("JPEG", "RGB", {"quality": 95, "keep_rgb": True}),
        ("JPEG", "CMYK", {"quality": 95}),
    ],
)
def test_every_form_of_a_gray_picture_decodes_to_it(
    tmp_path: Path, image_format: str, mode: str, options: dict[str, Any]
) -> None:
    """Colour forms of a gray picture give the gray picture, up to JPEG's loss."""
    pixels = GRAY if mode == "P" else COLOUR
    gray = decoded(tmp_path, encoded(pixels, image_format, mode, **options))

    assert gray.shape == (80, 120)
    assert np.abs(gray.astype(int) - GRAY).mean() < 1.5


def test_transparency_does_not_darken(tmp_path: Path) -> None:
    """Alpha is dropped, not multiplied."""
    transparent = np.dstack([COLOUR, np.zeros_like(GRAY)])

    assert np.array_equal(decoded(tmp_path, encoded(transparent, "PNG")), GRAY)


def test_orientation_is_not_applied(tmp_path: Path) -> None:
    """Coordinates belong to the pixels as stored."""
    block = Image.Exif()
    block[0x0112] = 6

    assert decoded(tmp_path, encoded(COLOUR, exif=block)).shape == (80, 120)


@pytest.mark.parametrize(
    ("pixels", "image_format"),
    [
        (GRAY.astype(np.uint16) * 16, "PNG"),
        (GRAY.astype(np.uint16) * 16, "TIFF"),
        (GRAY.astype(np.int32) * 1000, "TIFF"),
        (GRAY.astype(np.float32) / 255.0, "TIFF"),
    ],
)
def test_deep_channels_are_stretched_to_the_whole_range(
    tmp_path: Path, pixels: NDArray[Any], image_format: str
) -> None:
    """12-bit content in 16 bits would else be black, without a feature."""
    gray = decoded(tmp_path, encoded(pixels, image_format))

    assert gray.min() == 0
    assert gray.max() == 255
    assert np.corrcoef(gray.reshape(-1), GRAY.reshape(-1))[0, 1] > 0.999


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_deep_colour_is_stretched_too(tmp_path: Path, suffix: str) -> None:
    """16-bit colour keeps its lower bits, which Pillow alone would cut."""
    _, content = cv2.imencode(suffix, COLOUR.astype(np.uint16) * 16)
    gray = decoded(tmp_path, content.tobytes())

    assert gray.max() == 255
    assert np.corrcoef(gray.reshape(-1), GRAY.reshape(-1))[0, 1] > 0.999


def test_a_constant_deep_picture_is_black() -> None:
    """A range of no width is no error."""
    assert stretch(np.full((4, 4), 700, dtype=np.uint16)).max() == 0


def test_the_stretch_ignores_a_hot_pixel() -> None:
    """A thousandth of the pixels does not set the range."""
    levels = np.linspace(100, 300, 10_000).astype(np.uint16).reshape(100, 100)
    levels[0, 0] = 65_535

    assert np.median(stretch(levels)) == pytest.approx(127, abs=2)


def test_damaged_png_data_is_unreadable(tmp_path: Path) -> None:
    """Chunks that are all there may still hold nonsense."""
    content = bytearray(encoded(GRAY, "PNG"))
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    with pytest.raises(DecodingError, match=r"cannot be decoded|ends too early"):
        decoded(tmp_path, bytes(content))


@pytest.mark.parametrize(("longer_px", "expected"), [(120, (80, 120)), (119, (79, 119)), (64, (43, 64))])
def test_shrinking_fits_the_longer_side(longer_px: int, expected: tuple[int, int]) -> None:
    """A picture that fits is left alone; one pixel too long, and it is shrunk."""
    image = shrink(GRAY, longer_px)

    assert image.pixels.shape == expected
    assert (image.full_width_px, image.full_height_px) == (120, 80)


def test_a_line_of_pixels_keeps_its_last_one() -> None:
    """A side never becomes zero."""
    assert shrink(np.zeros((1, 1000), dtype=np.uint8), 64).pixels.shape == (1, 64)
