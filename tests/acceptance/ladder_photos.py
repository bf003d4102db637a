"""Builds photos of any size and look for measuring memory: real ones side by side, and patterns.

A look is how the pixels are stored; those are chosen whose decoders differ in
what they hold. A content is what the picture shows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasks.import_images import ImportPayload, run
from tasks.store import Store
from tests.unit.tasks.keypoint_patterns import FULLEST_ORB, FULLEST_SIFT
from tests.unit.tasks.photo_builders import AMPLE

LADDER_MEGAPIXELS = (1, 4, 12, 24, 50, 100)
Content = Literal["photo", "squares", "dots", "fullest_sift", "fullest_orb"]
DENSE_CONTENTS: tuple[Content, ...] = ("squares", "dots", "fullest_sift", "fullest_orb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How pixels are stored: gray, colour or 16 bit; and by which encoder."""

    group: Literal["gray", "colour", "16 bit"]
    suffix: str
    channels: int = 1
    write: Callable[[NDArray[Any], Path], object]

    @property
    def is_deep(self) -> bool:
        """Tell whether a channel has 16 bits."""
        return self.group == "16 bit"


def _pillow(pixels: NDArray[Any], path: Path, mode: str | None = None, **options: Any) -> None:
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)


def _opencv(pixels: NDArray[Any], path: Path, *options: int) -> None:
    if not cv2.imwrite(str(path), pixels, options):
        raise OSError(f"OpenCV could not write {path}")


def _one_strip(pixels: NDArray[Any], path: Path) -> None:
    rows_per_strip = {278: 1 << 20}
    _pillow(pixels, path, compression="tiff_lzw", tiffinfo=rows_per_strip)


LOOKS: Mapping[str, Look] = {
    "gray JPEG": Look(group="gray", suffix="jpg", write=_pillow),
    "gray PNG": Look(group="gray", suffix="png", write=partial(_pillow, compress_level=1)),
    "JPEG": Look(group="colour", suffix="jpg", channels=3, write=_pillow),
    "progressive JPEG": Look(
        group="colour", suffix="jpg", channels=3, write=partial(_pillow, progressive=True, subsampling=0)
    ),
    "CMYK JPEG": Look(group="colour", suffix="jpg", channels=3, write=partial(_pillow, mode="CMYK")),
    "PNG": Look(group="colour", suffix="png", channels=3, write=partial(_pillow, compress_level=1)),
    "WebP": Look(group="colour", suffix="webp", channels=3, write=partial(_pillow, method=0)),
    "TIFF in one strip": Look(group="colour", suffix="tif", channels=3, write=_one_strip),
    "16-bit gray PNG": Look(group="16 bit", suffix="png", write=partial(_pillow, compress_level=1)),
    "16-bit gray TIFF": Look(group="16 bit", suffix="tif", write=_pillow),
    "16-bit colour PNG": Look(
        group="16 bit",
        suffix="png",
        channels=3,
        write=lambda *to: _opencv(*to, cv2.IMWRITE_PNG_COMPRESSION, 1),
    ),
    "16-bit colour TIFF": Look(
        group="16 bit",
        suffix="tif",
        channels=3,
        write=lambda *to: _opencv(*to, cv2.IMWRITE_TIFF_COMPRESSION, 1),
    ),
}


def size_of(megapixels: float) -> tuple[int, int]:
    """Return width and height, 3 to 2, of at most so many megapixels."""
    width_px = isqrt(round(megapixels * 1.5e6))
    return width_px, int(megapixels * 1e6) // width_px


def render(content: Content, size_px: tuple[int, int], source: Path) -> NDArray[np.uint8]:
    """Return a gray picture, uint8 (height, width).

    A photo is the one at ``source``, mirrored side by side, so that no edge
    comes from the seams; squares are random black and white ones of 3 pixels.
    """
    width, height = size_px
    match content:
        case "photo":
            tile = np.asarray(Image.open(source).convert("L"))
            tile = np.block([[tile, tile[:, ::-1]], [tile[::-1], tile[::-1, ::-1]]])
        case "squares":
            squares = np.random.default_rng(0).integers(0, 2, (400, 400), dtype=np.uint8)
            tile = np.kron(squares * 255, np.ones((3, 3), dtype=np.uint8)).astype(np.uint8)
        case "dots":
            tile = np.zeros((6, 6), dtype=np.uint8)
            tile[0, 0] = 255
        case "fullest_sift":
            tile = np.array(FULLEST_SIFT, dtype=np.uint8)
        case "fullest_orb":
            tile = np.array(FULLEST_ORB, dtype=np.uint8)
    rows, columns = -(-height // tile.shape[0]), -(-width // tile.shape[1])
    return np.ascontiguousarray(np.tile(tile, (rows, columns))[:height, :width])


def photo_of(look: Look, gray: NDArray[np.uint8], store: Store, folder: Path) -> str:
    """Encode a gray picture in a look, link it into a store and return its content hash."""
    pixels: NDArray[Any] = gray.astype(np.uint16) * 60 if look.is_deep else gray
    if look.channels == 3:
        pixels = np.stack((pixels, pixels[::-1], pixels // 2), axis=-1)
    name = f"{folder.name}.{look.suffix}"
    look.write(pixels, folder / name)
    payload = ImportPayload(project="ladder", name=name, source=str(folder / name), link=True)
    list(run([payload], AMPLE, store))
    return store.project("ladder").registrations()[name]
