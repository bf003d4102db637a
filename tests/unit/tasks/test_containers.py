"""Tests of what is accepted as a whole image."""

import io
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.containers import ImageHeader, read_header
from tasks.end_markers import ContainerError
from tasks.errors import Reason
from tests.unit.tasks.photo_builders import encoded, textured

GRAY = textured(96, 64)
COLOUR = np.stack([GRAY, GRAY[::-1], GRAY], axis=2)
EXIF = Image.Exif()
EXIF[0x0112] = 6
WHOLE: dict[str, bytes] = {
    "jpeg": encoded(COLOUR),
    "progressive": encoded(COLOUR, progressive=True),
    "png": encoded(COLOUR, "PNG"),
    "tiff": encoded(COLOUR, "TIFF", compression="tiff_lzw"),
    "webp": encoded(COLOUR, "WEBP"),
    "lossless webp": encoded(COLOUR, "WEBP", lossless=True),
    "extended webp": encoded(COLOUR, "WEBP", "RGBA", exif=EXIF),
    "bmp": encoded(COLOUR, "BMP"),
}
FORMATS = {"progressive": "jpeg", "lossless webp": "webp", "extended webp": "webp"}


def header_of(content: bytes) -> ImageHeader:
    """Read the header of a file's bytes."""
    return read_header(io.BytesIO(content), len(content))


def reason_of(content: bytes) -> Reason:
    """Return why a file is refused."""
    with pytest.raises(ContainerError) as caught:
        header_of(content)
    return caught.value.reason


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_image_is_accepted_by_its_content(kind: str) -> None:
    """Every known kind gives its size, whatever the file is called."""
    header = header_of(WHOLE[kind])

    assert (header.width_px, header.height_px) == (96, 64)
    assert header.format == FORMATS.get(kind, kind)
    assert header.progressive == (kind == "progressive")


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("kept_ratio", [0.1, 0.5, 0.9])
def test_a_cut_image_is_truncated(kind: str, kept_ratio: float) -> None:
    """A copy that stopped early is found from the header and the end marker alone."""
    content = WHOLE[kind]

    assert reason_of(content[: int(len(content) * kept_ratio)]) is Reason.TRUNCATED


@pytest.mark.parametrize("kind", ["jpeg", "progressive", "png"])
def test_the_last_missing_byte_is_noticed(kind: str) -> None:
    """The pair of the test of whole images: one byte less is too few."""
    assert reason_of(WHOLE[kind][:-1]) is Reason.TRUNCATED


@pytest.mark.parametrize("trailer", [b"\0" * 5000, b"SEFT" * 900, WHOLE["jpeg"][: len(WHOLE["jpeg"]) // 2]])
def test_what_follows_a_jpeg_does_not_matter(trailer: bytes) -> None:
    """Phones append padding, their own data, and further pictures."""
    assert header_of(WHOLE["jpeg"] + trailer).width_px == 96


def test_the_end_marker_of_a_thumbnail_does_not_count() -> None:
    """A cut JPEG with a whole thumbnail in its EXIF block is still cut."""
    thumbnail = b"Exif\0\0" + WHOLE["jpeg"]
    segment = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    content = b"\xff\xd8" + segment + WHOLE["jpeg"][2:]

    assert header_of(content).width_px == 96
    assert reason_of(content[:-300]) is Reason.TRUNCATED


def test_an_empty_file_says_so() -> None:
    """Zero bytes have their own reason."""
    assert reason_of(b"") is Reason.EMPTY_FILE


@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-1.7 not a photo at all, really",
        b"x",
        b"\0\0\0\x18ftypheic" + b"\0" * 40,
        b"GIF89a" + b"\0" * 40,
    ],
)
def test_what_is_no_known_image_says_so(content: bytes) -> None:
    """Documents and unsupported pictures are told from damaged ones."""
    assert reason_of(content) is Reason.NOT_AN_IMAGE


@pytest.mark.parametrize(("height_px", "accepted"), [(10_000, True), (10_001, False)])
def test_a_hundred_megapixels_are_the_limit(height_px: int, *, accepted: bool) -> None:
    """The limit is read from the header; nothing is decoded."""
    content = bytearray(encoded(np.zeros((1, 1), dtype=np.uint8), "PNG"))
    content[16:24] = (10_000).to_bytes(4, "big") + height_px.to_bytes(4, "big")
    content[29:33] = _crc(bytes(content[12:29]))

    if accepted:
        assert header_of(bytes(content)).height_px == height_px
    else:
        assert reason_of(bytes(content)) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("content", "mode", "bits"),
    [
        (WHOLE["jpeg"], "RGB", 8),
        (WHOLE["lossless webp"], "RGB", 8),
        (encoded(np.dstack([COLOUR, GRAY]), "WEBP", lossless=True), "RGBA", 8),
        (encoded(GRAY.astype(np.uint16) * 16, "PNG"), "I;16", 16),
        (encoded(GRAY.astype(np.uint16) * 16, "TIFF"), "I;16", 16),
        (encoded(GRAY.astype(np.float32), "TIFF"), "F", 32),
        (encoded(COLOUR, "PNG", "P"), "P", 8),
    ],
)
def test_the_depth_of_the_channels_is_read(content: bytes, mode: str, bits: int) -> None:
    """Mode and bits decide how, and in how much memory, a photo is decoded."""
    header = header_of(content)

    assert (header.mode, header.bits_per_channel) == (mode, bits)


def test_exif_of_a_webp_is_read() -> None:
    """The EXIF chunk stands behind the pixels."""
    assert header_of(WHOLE["extended webp"]).exif[0x0112] == 6


@pytest.mark.parametrize("kind", WHOLE)
def test_no_damage_to_a_header_escapes_as_another_error(kind: str) -> None:
    """Whatever the first bytes are, the answer is a header or a named reason."""
    random = np.random.default_rng(1)
    reasons: set[Any] = set()
    for _ in range(200):
        content = bytearray(WHOLE[kind])
        content[random.integers(4, 80)] = random.integers(0, 256)
        try:
            reasons.add(type(header_of(bytes(content))))
        except ContainerError as error:
            reasons.add(error.reason)

    assert ImageHeader in reasons
    assert len(reasons) > 1


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")
