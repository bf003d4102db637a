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
11 * 4 * 4 * 4/3 = 234.7. Not covered: synthetic pictures that are nothing but
keypoints (4 megapixels of dots every 6 pixels: 275; of a checkerboard of
4-pixel squares: 257). Noise (236) and random blocks (240) are covered.

Measured peak of a whole batch against the bound, MiB, two threads: SIFT 226
of 252, 901 of 937, 2,700 of 2,761, 5,400 of 5,497 at 1 / 4 / 12 / 24
megapixels; ORB 8 of 36, 27 of 74, 75 of 173, 147 of 322 (noise: 42 of 74 at 4).
"""

from dataclasses import replace

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

# Strips, file buffers, keypoint lists, up to 1 MiB per OpenCV thread.
_OVERHEAD_BYTES = 24 * MIB
_DETECTION_BYTES_PER_PIXEL: dict[Extractor, int] = {"orb": 12, "sift": 238, "rootsift": 238}
_PILLOW_BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
_PILLOW_WIDEST_BYTES = 4
_CHANNELS = {**dict.fromkeys((*_PILLOW_BYTES_PER_PIXEL, "I", "F"), 1), "LA": 2, "RGBA": 4, "CMYK": 4}
_COEFFICIENT_BYTES = 2
_WEBP_FRAMES_BYTES = 12


def features_estimate(record: PhotoRecord, parameters: FeatureParameters) -> Estimate:
    """Return what extracting features from a photo is charged: the frozen figure, or more.

    Amounts above the frozen figure are whole MiB, so that photos of nearly
    equal size share one estimate.
    """
    frozen = ESTIMATES[parameters.extractor]
    missing_bytes = peak_bound_bytes(record, parameters) - frozen.memory_fixed_bytes
    per_item_bytes = max(frozen.memory_per_item_bytes, -(-missing_bytes // MIB) * MIB)
    return replace(frozen, memory_per_item_bytes=per_item_bytes)


def peak_bound_bytes(record: PhotoRecord, parameters: FeatureParameters) -> int:
    """Return the bound of the peak above a warm child.

    The phases follow each other and free what they used: decode the photo,
    shrink it (both pictures stand), detect in what is left.
    """
    pixels = record.width_px * record.height_px
    ratio = min(1.0, parameters.max_image_size_px / max(record.width_px, record.height_px))
    # Rounding a side up adds at most one row and one column.
    detection_pixels = round((record.width_px * ratio + 1) * (record.height_px * ratio + 1))
    phases = (
        _decoding_bytes(record),
        pixels + detection_pixels,
        (_DETECTION_BYTES_PER_PIXEL[parameters.extractor] + 1) * detection_pixels,
    )
    return _OVERHEAD_BYTES + max(phases)


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
