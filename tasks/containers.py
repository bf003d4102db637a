"""Decides from header and end marker what kind of image a file is, and whether it is whole.

Nothing is decoded here: damage inside the pixel data is found by
:mod:`tasks.decoding`. What the header says about the camera is read in
:mod:`tasks.exif`.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from tasks.errors import Reason, TasksError
from tasks.pillow import opened_image

MAX_PIXELS = 100_000_000

_CHUNK_BYTES = 1 << 20
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_PROGRESSIVE_MARKERS = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_JPEG_START_OF_SCAN = 0xDA
_JPEG_END = 0xD9
# Within a scan FF is followed by 00 (a plain FF), FF (fill) or D0..D7 (restart).
_JPEG_MARKER_IN_SCAN = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_JPEG_SEGMENTS_BETWEEN_SCANS = frozenset({0xC4, 0xDA, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)})
_TIFF_OFFSET_AND_COUNT_TAGS = ((273, 279), (324, 325))
_TIFF_BITS_PER_SAMPLE_TAG = 258
_TIFF_RAW_TAGS = (50706, 33421)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif"})


class ContainerError(TasksError):
    """A file is not a whole image of a known kind; carries why."""

    def __init__(self, reason: Reason, cause: str) -> None:
        super().__init__(cause)
        self.reason = reason
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a file's header says about its pixels and its camera."""

    format: str
    width_px: int
    height_px: int
    mode: str
    """Pillow's name of the pixel form."""
    bits_per_channel: int
    progressive: bool
    exif: Image.Exif


def read_header(file: BinaryIO, size_bytes: int) -> ImageHeader:
    """Read a file's header and check that its end is there.

    Raises:
        ContainerError: empty, no image of a known kind, cut off, or too large.
    """
    if size_bytes == 0:
        raise ContainerError(Reason.EMPTY_FILE, "the file is empty")
    file.seek(0)
    start = file.read(32)
    name = _format_name(start)
    # Before Pillow: a file that is cut in its header is cut off, not unknown.
    progressive = _CHECKS[name](file, size_bytes)
    file.seek(0)
    try:
        with opened_image(file) as image:
            _check_size(image)
            if isinstance(image, TiffImageFile):
                _check_tiff(image, size_bytes)
            return ImageHeader(
                format=name,
                width_px=image.width,
                height_px=image.height,
                mode=image.mode,
                bits_per_channel=_bits_per_channel(image, start),
                progressive=progressive,
                exif=_exif(image),
            )
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, KeyError, struct.error) as error:
        raise ContainerError(Reason.UNREADABLE, f"its {name.upper()} header is damaged") from error


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


def _cut_off(what: str) -> ContainerError:
    return ContainerError(Reason.TRUNCATED, f"the file is cut off: {what}")


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        megapixels = image.width * image.height / 1e6
        raise ContainerError(
            Reason.TOO_LARGE, f"it has {megapixels:.1f} megapixels; {MAX_PIXELS // 10**6} are the limit"
        )


def _check_jpeg(file: BinaryIO, size_bytes: int) -> bool:
    """Follow the segments and scans to the end marker; tell whether it is progressive.

    Thumbnails lie inside segments, which are jumped over; what follows the
    end marker (further pictures, padding) is not looked at.
    """
    progressive = sized = False
    position = 2
    while True:
        marker, position = _jpeg_marker(file, position)
        if marker == _JPEG_END:
            if not sized:
                raise ContainerError(Reason.UNREADABLE, "the JPEG holds no picture")
            return progressive
        sized = sized or marker in _JPEG_SIZE_MARKERS
        progressive = progressive or marker in _JPEG_PROGRESSIVE_MARKERS
        position += _jpeg_segment_bytes(file, position)
        if position > size_bytes:
            raise _cut_off("it ends inside a JPEG segment")
        if marker == _JPEG_START_OF_SCAN:
            position = _jpeg_scan_end(file, position)


def _jpeg_marker(file: BinaryIO, position: int) -> tuple[int, int]:
    """Return the marker at a position (fill bytes allowed) and the position after it."""
    file.seek(position)
    first = file.read(1)
    if first and first != b"\xff":
        raise ContainerError(Reason.UNREADABLE, "its JPEG segments are damaged")
    while first == b"\xff":
        position += 1
        first = file.read(1)
    if not first:
        raise _cut_off("the JPEG end marker is missing")
    return first[0], position + 1


def _jpeg_segment_bytes(file: BinaryIO, position: int) -> int:
    file.seek(position)
    length = file.read(2)
    if len(length) < 2:
        raise _cut_off("it ends inside a JPEG segment")
    # A length counts its own two bytes; less is damage, but must not stop the walk.
    return max(2, int.from_bytes(length, "big"))


def _jpeg_scan_end(file: BinaryIO, position: int) -> int:
    """Return the position of the first marker behind a scan's entropy-coded data."""
    file.seek(position)
    last = b""
    while chunk := file.read(_CHUNK_BYTES):
        data = last + chunk
        for match in _JPEG_MARKER_IN_SCAN.finditer(data):
            marker = match.group(1)[0]
            if marker == _JPEG_END or marker in _JPEG_SEGMENTS_BETWEEN_SCANS:
                return position - len(last) + match.start()
        position += len(chunk)
        last = data[-1:]
    raise _cut_off("the JPEG end marker is missing")


def _check_png(file: BinaryIO, size_bytes: int) -> bool:
    position = 8
    while True:
        file.seek(position)
        head = file.read(8)
        if len(head) < 8 or position + 12 + int.from_bytes(head[:4], "big") > size_bytes:
            raise _cut_off("the PNG end chunk is missing")
        if head[4:] == b"IEND":
            return False
        position += 12 + int.from_bytes(head[:4], "big")


def _check_webp(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(4)
    stated = 8 + int.from_bytes(file.read(4), "little")
    if stated > size_bytes:
        raise _cut_off(f"{size_bytes} of {stated} bytes are there")
    return False


def _check_bmp(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(0)
    head = file.read(34)
    if len(head) < 34:
        raise _cut_off("it ends inside the BMP header")
    data_offset, width, height = struct.unpack_from("<I4xii", head, 10)
    bits, compression = struct.unpack_from("<HI", head, 28)
    row_bytes = (abs(width) * bits + 31) // 32 * 4
    stated = data_offset + (row_bytes * abs(height) if compression in {0, 3} else 0)
    if stated > size_bytes:
        raise _cut_off(f"{size_bytes} of {stated} bytes are there")
    return False


def _check_tiff_directory(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(0)
    head = file.read(16)
    order = "<" if head[:2] == b"II" else ">"
    is_big = head[2:4] in {b"+\0", b"\0+"}
    if len(head) < 16:
        raise _cut_off("it ends inside the TIFF header")
    (offset,) = struct.unpack_from(f"{order}Q" if is_big else f"{order}I", head, 8 if is_big else 4)
    if offset + 2 > size_bytes:
        raise _cut_off("the TIFF directory is missing")
    return False


def _check_tiff(image: TiffImageFile, size_bytes: int) -> None:
    """Check that every strip or tile lies in the file, and that it is no camera raw file."""
    tags: Mapping[int, Any] = image.tag_v2
    if any(tag in tags for tag in _TIFF_RAW_TAGS):
        raise ContainerError(Reason.NOT_AN_IMAGE, "camera raw files cannot be read by this installation")
    for offsets_tag, counts_tag in _TIFF_OFFSET_AND_COUNT_TAGS:
        offsets, counts = tags.get(offsets_tag, ()), tags.get(counts_tag, ())
        ends = (offset + count for offset, count in zip(offsets, counts, strict=False))
        if max(ends, default=0) > size_bytes:
            raise _cut_off("a TIFF strip or tile lies behind its end")


def _exif(image: Image.Image) -> Image.Exif:
    # PNG's own method decodes the whole picture to look for EXIF behind its pixels.
    return Image.Image.getexif(image) if image.format == "PNG" else image.getexif()


def _bits_per_channel(image: Image.Image, start: bytes) -> int:
    """Return the bits of one channel in the file; Pillow's mode hides them for 16-bit colour."""
    if image.format == "PNG":
        return start[24]
    if isinstance(image, TiffImageFile):
        bits: Any = image.tag_v2.get(_TIFF_BITS_PER_SAMPLE_TAG, (1,))
        return int(max(bits))
    return 8


_CHECKS: dict[str, Callable[[BinaryIO, int], bool]] = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "tiff": _check_tiff_directory,
    "webp": _check_webp,
    "bmp": _check_bmp,
}
