"""Reads the header of a WebP file: size, alpha, EXIF.

Own code, because Pillow reads the whole file, twice, to open one. Layout:
the RIFF container and bitstream headers of the WebP specification (RFC 9649).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

_FIRST_CHUNK = 12
_EXTENDED_ALPHA_FLAG = 0x10
_LOSSLESS_SIGNATURE = 0x2F
_EXIF_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WebpHeader:
    """What the chunks of a WebP file say."""

    width_px: int
    height_px: int
    has_alpha: bool
    exif: bytes = b""


def read_webp_header(file: BinaryIO, size_bytes: int) -> WebpHeader:
    """Read the chunks' headers; the first picture chunk gives the size.

    Raises:
        ValueError: no picture chunk, or a damaged one.
    """
    header: WebpHeader | None = None
    exif = b""
    for name, position, length in _chunks(file, size_bytes):
        if header is None and name in _PICTURE_CHUNKS:
            file.seek(position)
            header = _PICTURE_CHUNKS[name](file.read(10))
        elif name == b"EXIF" and length <= _EXIF_MAX_BYTES:
            file.seek(position)
            exif = file.read(length)
    if header is None:
        raise ValueError("no picture in the WebP file")
    return replace(header, exif=exif)


def _chunks(file: BinaryIO, size_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, position, length) of each chunk's content; contents have even lengths."""
    position = _FIRST_CHUNK
    while position + 8 <= size_bytes:
        file.seek(position)
        name, length = struct.unpack("<4sI", file.read(8))
        yield name, position + 8, length
        position += 8 + length + length % 2


def _extended(content: bytes) -> WebpHeader:
    flags, width, height = content[0], content[4:7], content[7:10]
    return WebpHeader(
        width_px=int.from_bytes(width, "little") + 1,
        height_px=int.from_bytes(height, "little") + 1,
        has_alpha=bool(flags & _EXTENDED_ALPHA_FLAG),
    )


def _lossy(content: bytes) -> WebpHeader:
    if content[3:6] != b"\x9d\x01\x2a":
        raise ValueError("a damaged lossy WebP picture")
    width, height = struct.unpack_from("<HH", content, 6)
    return WebpHeader(width_px=width & 0x3FFF, height_px=height & 0x3FFF, has_alpha=False)


def _lossless(content: bytes) -> WebpHeader:
    signature, bits = struct.unpack_from("<BI", content)
    if signature != _LOSSLESS_SIGNATURE:
        raise ValueError("a damaged lossless WebP picture")
    return WebpHeader(
        width_px=(bits & 0x3FFF) + 1,
        height_px=(bits >> 14 & 0x3FFF) + 1,
        has_alpha=bool(bits >> 28 & 1),
    )


_PICTURE_CHUNKS = {b"VP8X": _extended, b"VP8 ": _lossy, b"VP8L": _lossless}
