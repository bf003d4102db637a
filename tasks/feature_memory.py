"""Decides how much memory feature extraction needs, from a photo's header alone.

Measured with OpenCV 5.0.0 and Pillow 12 (peak VmHWM above a warm child, in a
fresh process). Decoding 12 megapixels, bytes per pixel, own gray copy included:

    JPEG 2.1 | progressive 4:4:4 JPEG 7.0 | CMYK 5.2, progressive 12.0
    PNG gray 2.1, colour 5.2, 16-bit 5.1 | WebP 16.6 | BMP 5.3
    TIFF colour 5.2, LZW 6.6, LZW in one strip 9.6 | 32-bit TIFF 11.3

Detection, bytes per pixel of the (shrunk) detection image, 1 to 12 threads:

    SIFT 236.6 / 236.0 / 235.9 / 235.9 at 1 / 4 / 12 / 24 megapixels
    ORB 9.5 / 7.6 / 5.7 / 5.5 (10.9 on 4 megapixels of pure noise)

SIFT's theory: 6 Gaussian and 5 difference images of float32 per octave, the
first octave doubled (4 pixels per pixel), 4/3 for the octaves after it:
11 * 4 * 4 * 4/3 = 234.7. ORB's: 8 levels, each 1 / 1.44 of the one before.

On top comes the list of keypoints, which only the picture bounds. Photos have
up to 0.016 per pixel for SIFT, and 0.046 FAST corners for ORB; the worst
patterns that a search over small repeated tiles found have 0.92 and 0.25
(docs/memory.md), where SIFT takes 296 / 311 / 328 bytes per pixel with 1 / 2 /
12 threads, and ORB 37. So a usual density is charged from the header alone;
once the picture is there, :mod:`tasks.keypoint_density` tells whether it has more.
"""

from dataclasses import dataclass, replace

from governor.model import Estimate
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import PhotoRecord

MIB = 1 << 20

_FIXED_BYTES = 64 * MIB
_THREADS = 12


def _frozen(memory_per_item_bytes: int) -> Estimate:
    return Estimate(
        memory_fixed_bytes=_FIXED_BYTES,
        memory_per_item_bytes=memory_per_item_bytes,
        cpu_threads=_THREADS,
        io_slots=1,
    )


ESTIMATES: dict[Extractor, Estimate] = {
    "orb": _frozen(512 * MIB),
    "sift": _frozen(1024 * MIB),
    "rootsift": _frozen(1024 * MIB),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Detection:
    """What finding keypoints takes: so much per pixel of the detection image, and so much per keypoint."""

    bytes_per_pixel: int
    bytes_per_keypoint: int
    """28 in OpenCV's list; lists double as they grow, one per thread is gathered into one for all."""
    usual_keypoints_per_pixel: float
    most_keypoints_per_pixel: float


_SIFT = _Detection(
    bytes_per_pixel=235,
    bytes_per_keypoint=128,
    usual_keypoints_per_pixel=0.04,
    most_keypoints_per_pixel=1.0,
)
# Of four neighbouring pixels at most one is a FAST corner. Equal responses are all kept and
# described, whatever the limit.
_ORB = _Detection(
    bytes_per_pixel=5,
    bytes_per_keypoint=132,
    usual_keypoints_per_pixel=0.06,
    most_keypoints_per_pixel=0.25,
)
_DETECTION: dict[Extractor, _Detection] = {"orb": _ORB, "sift": _SIFT, "rootsift": _SIFT}

# Strips, file buffers, up to 1 MiB per OpenCV thread.
_OVERHEAD_BYTES = 24 * MIB
_PILLOW_BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
_PILLOW_WIDEST_BYTES = 4
_CHANNELS = {**dict.fromkeys((*_PILLOW_BYTES_PER_PIXEL, "I", "F"), 1), "LA": 2, "RGBA": 4, "CMYK": 4}
_COEFFICIENT_BYTES = 2
_WEBP_FRAMES_BYTES = 12


def features_estimate(
    record: PhotoRecord, parameters: FeatureParameters, keypoints_per_pixel: float = 0.0
) -> Estimate:
    """Return what extracting features from a photo is charged: the frozen figure, or more.

    Amounts above the frozen figure are whole MiB, so that photos of nearly
    equal size share one estimate. ``keypoints_per_pixel`` where it is known.
    """
    frozen = ESTIMATES[parameters.extractor]
    bound_bytes = peak_bound_bytes(record, parameters, keypoints_per_pixel)
    missing_bytes = bound_bytes - frozen.memory_fixed_bytes
    per_item_bytes = max(frozen.memory_per_item_bytes, -(-missing_bytes // MIB) * MIB)
    return replace(frozen, memory_per_item_bytes=per_item_bytes)


def peak_bound_bytes(
    record: PhotoRecord, parameters: FeatureParameters, keypoints_per_pixel: float = 0.0
) -> int:
    """Return the bound of the peak above a warm child, for a picture of usual or of a higher density.

    The phases follow each other and free what they used: decode the photo,
    shrink it (both pictures stand), detect in what is left.
    """
    pixels = record.width_px * record.height_px
    ratio = min(1.0, parameters.max_image_size_px / max(record.width_px, record.height_px))
    # Rounding a side up adds at most one row and one column.
    detection_pixels = round((record.width_px * ratio + 1) * (record.height_px * ratio + 1))
    detection = _DETECTION[parameters.extractor]
    keypoints = detection_pixels * max(keypoints_per_pixel, detection.usual_keypoints_per_pixel)
    phases = (
        _decoding_bytes(record),
        pixels + detection_pixels,
        (1 + detection.bytes_per_pixel) * detection_pixels + round(detection.bytes_per_keypoint * keypoints),
    )
    return _OVERHEAD_BYTES + max(phases)


def any_picture_bound_bytes(record: PhotoRecord, parameters: FeatureParameters) -> int:
    """Return :func:`peak_bound_bytes` for a picture of nothing but keypoints."""
    most = _DETECTION[parameters.extractor].most_keypoints_per_pixel
    return peak_bound_bytes(record, parameters, most)


def _decoding_bytes(record: PhotoRecord) -> int:
    """Return what decoding holds at once: the decoder's buffers, its picture, our copies."""
    pixels = record.width_px * record.height_px
    channels = _CHANNELS.get(record.mode, 3)
    channel_bytes = -(-record.bits_per_channel // 8)
    per_pixel = _PILLOW_BYTES_PER_PIXEL.get(record.mode, _PILLOW_WIDEST_BYTES) + 1
    if channels == 1 and channel_bytes > 1:
        # The channel as an array, and 16-bit levels where it is not of that form.
        per_pixel += channel_bytes + (2 if channel_bytes > 2 else 0)
    match record.format:
        case "jpeg":
            picture_bytes = 1 if channels <= 3 else _PILLOW_WIDEST_BYTES
            coefficients = channels * _COEFFICIENT_BYTES if record.progressive else 0
            return pixels * (picture_bytes + 1 + coefficients)
        case "webp":
            return pixels * (per_pixel + _WEBP_FRAMES_BYTES) + record.size_bytes
        case "tiff":
            # libtiff may hold a strip packed and unpacked, and one strip may be the whole photo.
            return pixels * (per_pixel + channels * channel_bytes) + record.size_bytes
        case _:
            return pixels * per_pixel
