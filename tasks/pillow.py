"""Decides how Pillow is used: which formats, no limit of its own, damage as errors or not at all."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from PIL import Image

_FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "BMP")

# Pillow's own guard only warns, from 89 megapixels on; ours (tasks.containers)
# is exact and is applied to the header, before any pixel is decoded.
Image.MAX_IMAGE_PIXELS = None


@contextmanager
def opened_image(file: Path | BinaryIO) -> Iterator[Image.Image]:
    """Open an image of a known format, without its warnings."""
    with pillow_warnings_ignored(), Image.open(file, formats=_FORMATS) as image:
        yield image


@contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Ignore what Pillow only warns of: damaged metadata costs what it says, not the photo.

    The setting belongs to the process, so one batch at a time may do this.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
