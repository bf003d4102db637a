"""Decides from the header what kind of image a file is, and what it says of its pixels.

Whether the file is whole is checked in :mod:`tasks.end_markers`; what EXIF
means is read in :mod:`tasks.exif`. Nothing is decoded here: damage inside the
pixel data is found by :mod:`tasks.decoding`.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from tasks.end_markers import END_CHECKS, ContainerError, cut_off
from tasks.errors import Reason
from tasks.pillow import opened_image, pillow_warnings_ignored
from tasks.webp import read_webp_header

MAX_PIXELS = 100_000_000

_PNG_BIT_DEPTH_OFFSET = 24
_TIFF_OFFSET_AND_COUNT_TAGS = ((273, 279), (324, 325))
_TIFF_BITS_PER_SAMPLE_TAG = 258
_TIFF_RAW_TAGS = (50706, 33421)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a file's header says about its pixels and its camera."""

    format: str
    width_px: int
    height_px: int
    mode: str
    """Pillow's name of the pixel form."""
    bits_per_channel: int
    exif: Image.Exif
    progressive: bool = False


def read_header(file: BinaryIO, size_bytes: int) -> ImageHeader:
    """Read a file's header and check that its end is there.

    Raises:
        ContainerError: empty, no image of a known kind, cut off, or too large.
    """
    if size_bytes == 0:
        raise ContainerError(Reason.EMPTY_FILE, "the file is empty")
    file.seek(0)
    name = _format_name(file.read(16))
    # Before the header is parsed: a file that is cut in its header is cut off, not damaged.
    progressive = END_CHECKS[name](file, size_bytes)
    try:
        header = _webp_header(file, size_bytes) if name == "webp" else _pillow_header(file, size_bytes, name)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, KeyError, struct.error) as error:
        raise ContainerError(Reason.UNREADABLE, f"its {name.upper()} header is damaged") from error
    _check_size(header)
    return replace(header, progressive=progressive)


def _pillow_header(file: BinaryIO, size_bytes: int, name: str) -> ImageHeader:
    file.seek(0)
    with opened_image(file) as image:
        if isinstance(image, TiffImageFile):
            _check_tiff(image, size_bytes)
        return ImageHeader(
            format=name,
            width_px=image.width,
            height_px=image.height,
            mode=image.mode,
            bits_per_channel=_bits_per_channel(image, file),
            exif=_exif(image),
        )


def _webp_header(file: BinaryIO, size_bytes: int) -> ImageHeader:
    header = read_webp_header(file, size_bytes)
    exif = Image.Exif()
    if header.exif:
        with pillow_warnings_ignored():
            exif.load(header.exif)
    return ImageHeader(
        format="webp",
        width_px=header.width_px,
        height_px=header.height_px,
        mode="RGBA" if header.has_alpha else "RGB",
        bits_per_channel=8,
        exif=exif,
    )


def _format_name(start: bytes) -> str:
    if start[:2] == b"\xff\xd8":
        return "jpeg"
    if start[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    if start[:4] in {b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"}:
        return "tiff"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[:2] == b"BM":
        return "bmp"
    if start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS:
        raise ContainerError(Reason.NOT_AN_IMAGE, "HEIC and AVIF photos cannot be read by this installation")
    raise ContainerError(Reason.NOT_AN_IMAGE, "its content is not JPEG, PNG, TIFF, WebP or BMP")


def _check_size(header: ImageHeader) -> None:
    pixels = header.width_px * header.height_px
    if pixels == 0:
        raise ContainerError(Reason.UNREADABLE, "its header states a size of zero")
    if pixels > MAX_PIXELS:
        raise ContainerError(
            Reason.TOO_LARGE, f"it has {pixels / 1e6:.1f} megapixels; {MAX_PIXELS // 10**6} are the limit"
        )


def _check_tiff(image: TiffImageFile, size_bytes: int) -> None:
    """Check that every strip or tile lies in the file, and that it is no camera raw file."""
    tags: Mapping[int, Any] = image.tag_v2
    if any(tag in tags for tag in _TIFF_RAW_TAGS):
        raise ContainerError(Reason.NOT_AN_IMAGE, "camera raw files cannot be read by this installation")
    for offsets_tag, counts_tag in _TIFF_OFFSET_AND_COUNT_TAGS:
        offsets, counts = tags.get(offsets_tag, ()), tags.get(counts_tag, ())
        ends = (offset + count for offset, count in zip(offsets, counts, strict=False))
        if max(ends, default=0) > size_bytes:
            raise cut_off("a TIFF strip or tile lies behind its end")


def _exif(image: Image.Image) -> Image.Exif:
    # PNG's own method decodes the whole picture to look for EXIF behind its pixels.
    return Image.Image.getexif(image) if image.format == "PNG" else image.getexif()


def _bits_per_channel(image: Image.Image, file: BinaryIO) -> int:
    """Return the bits of one channel in the file; Pillow's mode hides them for 16-bit colour."""
    if image.format == "PNG":
        file.seek(_PNG_BIT_DEPTH_OFFSET)
        return file.read(1)[0]
    if isinstance(image, TiffImageFile):
        bits: Any = image.tag_v2.get(_TIFF_BITS_PER_SAMPLE_TAG, (1,))
        return int(max(bits))
    return 8
