"""Decides whether an image file is whole: whether its end is where its header says.

Nothing is decoded here. What the header says of the pixels is read in
:mod:`tasks.containers`.
"""

import re
import struct
from collections.abc import Callable
from typing import BinaryIO

from tasks.errors import Reason, TasksError

_CHUNK_BYTES = 1 << 20
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_PROGRESSIVE_MARKERS = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_JPEG_START_OF_SCAN = 0xDA
_JPEG_END = 0xD9
# Within a scan FF is followed by 00 (a plain FF), FF (fill) or D0..D7 (restart).
_JPEG_MARKER_IN_SCAN = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_JPEG_SEGMENTS_BETWEEN_SCANS = frozenset({0xC4, 0xDA, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)})


class ContainerError(TasksError):
    """A file is not a whole image of a known kind; carries why."""

    def __init__(self, reason: Reason, cause: str) -> None:
        super().__init__(cause)
        self.reason = reason
        self.cause = cause


def cut_off(what: str) -> ContainerError:
    """Return the error of a file that ends too early."""
    return ContainerError(Reason.TRUNCATED, f"the file is cut off: {what}")


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
            raise cut_off("it ends inside a JPEG segment")
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
        raise cut_off("the JPEG end marker is missing")
    return first[0], position + 1


def _jpeg_segment_bytes(file: BinaryIO, position: int) -> int:
    file.seek(position)
    length = file.read(2)
    if len(length) < 2:
        raise cut_off("it ends inside a JPEG segment")
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
    raise cut_off("the JPEG end marker is missing")


def _check_png(file: BinaryIO, size_bytes: int) -> bool:
    position = 8
    while True:
        file.seek(position)
        head = file.read(8)
        if len(head) < 8 or position + 12 + int.from_bytes(head[:4], "big") > size_bytes:
            raise cut_off("the PNG end chunk is missing")
        if head[4:] == b"IEND":
            return False
        position += 12 + int.from_bytes(head[:4], "big")


def _check_webp(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(4)
    stated = 8 + int.from_bytes(file.read(4), "little")
    if stated > size_bytes:
        raise cut_off(f"{size_bytes} of {stated} bytes are there")
    return False


def _check_bmp(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(0)
    head = file.read(34)
    if len(head) < 34:
        raise cut_off("it ends inside the BMP header")
    data_offset, width, height = struct.unpack_from("<I4xii", head, 10)
    bits, compression = struct.unpack_from("<HI", head, 28)
    row_bytes = (abs(width) * bits + 31) // 32 * 4
    stated = data_offset + (row_bytes * abs(height) if compression in {0, 3} else 0)
    if stated > size_bytes:
        raise cut_off(f"{size_bytes} of {stated} bytes are there")
    return False


def _check_tiff_directory(file: BinaryIO, size_bytes: int) -> bool:
    file.seek(0)
    head = file.read(16)
    order = "<" if head[:2] == b"II" else ">"
    is_big = head[2:4] in {b"+\0", b"\0+"}
    if len(head) < 16:
        raise cut_off("it ends inside the TIFF header")
    (offset,) = struct.unpack_from(f"{order}Q" if is_big else f"{order}I", head, 8 if is_big else 4)
    if offset + 2 > size_bytes:
        raise cut_off("the TIFF directory is missing")
    return False


END_CHECKS: dict[str, Callable[[BinaryIO, int], bool]] = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "tiff": _check_tiff_directory,
    "webp": _check_webp,
    "bmp": _check_bmp,
}
"""Per format: raise ContainerError when the file is cut; tell whether it is a progressive JPEG."""
