"""Tests of the memory that feature extraction is charged: it covers the measured peak."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from governor.model import Grant
from tasks.feature_memory import ESTIMATES, MIB, features_estimate, peak_bound_bytes
from tasks.feature_sets import FEATURE_KINDS
from tasks.import_images import ESTIMATE as IMPORT_ESTIMATE
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import PhotoRecord
from tests.unit.tasks.peak_memory import measure
from tests.unit.tasks.photo_builders import encoded, photo_in_store, store_at, textured

COLOUR = {"mode": "RGB", "format": "jpeg", "bits_per_channel": 8}


def record(width_px: int, height_px: int, **fields: Any) -> PhotoRecord:
    """Return the record of a photo of a size."""
    return PhotoRecord(
        width_px=width_px, height_px=height_px, focal_length_px=1.0, focal_is_prior=False, **fields
    )


def bound_mib(extractor: Extractor, photo: PhotoRecord, max_image_size_px: int = 65_535) -> float:
    """Return the bound of a photo in MiB."""
    parameters = FeatureParameters(extractor=extractor, max_image_size_px=max_image_size_px)
    return peak_bound_bytes(photo, parameters) / MIB


@pytest.mark.parametrize("extractor", FEATURE_KINDS)
def test_the_bound_covers_the_measured_peak_with_little_waste(tmp_path: Path, extractor: Extractor) -> None:
    """One megapixel of a colour JPEG, two threads; the ladder to 100 megapixels is measured elsewhere."""
    store = store_at(tmp_path)
    pixels = np.dstack([textured(1200, 850, seed=seed) for seed in range(3)])
    photo = photo_in_store(store, tmp_path, encoded(pixels, quality=90))
    grant = Grant(batch=1, cpu_threads=2, memory_bytes=1 << 33)
    measured = measure(FEATURE_KINDS[extractor], store, grant, [{"image": photo}])
    bound_bytes = peak_bound_bytes(store.photo_record(photo), FeatureParameters(extractor=extractor))

    assert measured.outcomes == ["Done"]
    assert bound_bytes / 10 < measured.peak_bytes <= bound_bytes
    assert extractor == "orb" or measured.peak_bytes > 0.8 * bound_bytes


@pytest.mark.parametrize(
    ("image_format", "mode", "options"),
    [
        ("JPEG", "RGB", {"progressive": True, "subsampling": 0}),
        ("JPEG", "CMYK", {"progressive": True}),
        ("PNG", "RGBA", {"compress_level": 1}),
        ("PNG", "I;16", {"compress_level": 1}),
        ("WEBP", "RGB", {"method": 0}),
        ("TIFF", "RGB", {"compression": "tiff_lzw", "tiffinfo": {278: 1400}}),
        ("TIFF", "F", {}),
    ],
)
def test_the_bound_covers_decoding_alone(
    tmp_path: Path, image_format: str, mode: str, options: dict[str, Any]
) -> None:
    """A large photo whose features are sought in a tiny picture is all decoding."""
    store = store_at(tmp_path)
    pixels = textured(2100, 1400)
    content = _encoded_as(pixels, image_format, mode, options)
    photo = photo_in_store(store, tmp_path, content)
    grant = Grant(batch=1, cpu_threads=1, memory_bytes=1 << 33)
    payload = {"image": photo, "max_image_size_px": 64}
    measured = measure("features.extract", store, grant, [payload])
    parameters = FeatureParameters(extractor="orb", max_image_size_px=64)

    assert measured.outcomes == ["Done"]
    assert pixels.size < measured.peak_bytes <= peak_bound_bytes(store.photo_record(photo), parameters)


@pytest.mark.parametrize(
    ("fields", "measured_bytes_per_pixel"),
    [
        ({"format": "jpeg", "mode": "L"}, 2.1),
        ({"format": "jpeg", "mode": "RGB"}, 2.1),
        ({"format": "jpeg", "mode": "RGB", "progressive": True}, 7.0),
        ({"format": "jpeg", "mode": "CMYK"}, 5.2),
        ({"format": "jpeg", "mode": "CMYK", "progressive": True}, 12.0),
        ({"format": "png", "mode": "L"}, 2.1),
        ({"format": "png", "mode": "P"}, 2.1),
        ({"format": "png", "mode": "RGBA"}, 5.2),
        ({"format": "png", "mode": "I;16", "bits_per_channel": 16}, 5.1),
        ({"format": "png", "mode": "RGB", "bits_per_channel": 16}, 5.1),
        ({"format": "webp", "mode": "RGB"}, 16.1),
        ({"format": "tiff", "mode": "RGB"}, 6.6),
        ({"format": "tiff", "mode": "RGB", "bits_per_channel": 16}, 6.2),
        ({"format": "tiff", "mode": "F", "bits_per_channel": 32}, 11.3),
        ({"format": "bmp", "mode": "RGB"}, 5.1),
    ],
)
def test_the_bound_follows_the_measured_decoding(
    fields: dict[str, Any], measured_bytes_per_pixel: float
) -> None:
    """At 96 megapixels every form's bound covers what was measured per pixel, and less than twice it."""
    photo, parameters = (
        record(12_000, 8_000, **fields),
        FeatureParameters(extractor="orb", max_image_size_px=64),
    )
    needed_bytes = measured_bytes_per_pixel * 96e6

    assert needed_bytes <= peak_bound_bytes(photo, parameters) < 2 * needed_bytes


def test_importing_stays_below_its_reservation(tmp_path: Path) -> None:
    """A batch of 32 photos with EXIF blocks needs no more than the declared 16 MiB."""
    store, exif = store_at(tmp_path), Image.Exif()
    exif[0x010F] = "M" * 50_000
    payloads = []
    for index in range(32):
        source = tmp_path / f"{index}.jpg"
        source.write_bytes(encoded(textured(1200, 850, seed=index), exif=exif) + bytes(3 << 20))
        payloads.append({"project": "survey", "name": source.name, "source": str(source)})
    grant = Grant(batch=32, cpu_threads=1, memory_bytes=IMPORT_ESTIMATE.memory_bytes(32))
    measured = measure("import.images", store, grant, payloads)

    assert measured.outcomes == ["Done"] * 32
    assert measured.peak_bytes <= grant.memory_bytes


def test_the_frozen_figures_are_the_floor() -> None:
    """Small photos are charged 64 MiB plus 512 MiB (ORB) or 1 GiB (SIFT)."""
    small = record(640, 480)
    charged = {
        extractor: features_estimate(small, FeatureParameters(extractor=extractor)) for extractor in ESTIMATES
    }

    assert charged == ESTIMATES
    assert [estimate.memory_bytes(1) // MIB for estimate in charged.values()] == [576, 1088, 1088]


@pytest.mark.parametrize("extractor", ESTIMATES)
@pytest.mark.parametrize("side_px", [1, 640, 2200, 3200, 10_000])
def test_an_estimate_covers_its_bound(extractor: Extractor, side_px: int) -> None:
    """Whatever the size, the charge is at least the bound, and valid."""
    parameters = FeatureParameters(extractor=extractor, max_image_size_px=side_px + 64)
    photo = record(side_px, side_px, format="tiff", mode="RGB", bits_per_channel=16)
    estimate = features_estimate(photo, parameters)

    assert estimate.is_valid()
    assert estimate.memory_bytes(1) >= peak_bound_bytes(photo, parameters)


@pytest.mark.parametrize(("megapixels", "is_frozen"), [(4.6, True), (4.8, False)])
def test_the_frozen_sift_figure_ends_near_4_7_megapixels(megapixels: float, *, is_frozen: bool) -> None:
    """Above it the structural bound is charged."""
    photo = record(2000, round(megapixels * 500))
    estimate = features_estimate(photo, FeatureParameters(extractor="sift"))

    assert (estimate == ESTIMATES["sift"]) == is_frozen


@pytest.mark.parametrize(
    ("extractor", "density", "measured_bytes_per_pixel"),
    [("sift", 0.8815, 328.1), ("sift", 0.4829, 292.9), ("sift", 0.6351, 315.5), ("orb", 0.25, 36.7)],
)
def test_the_bound_follows_measured_densities(
    extractor: Extractor, density: float, measured_bytes_per_pixel: float
) -> None:
    """Pictures of nothing but keypoints are covered on twelve threads, with less than a sixth to spare."""
    parameters = FeatureParameters(extractor=extractor, max_image_size_px=65_535)
    bound_bytes = peak_bound_bytes(record(12_000, 8_000), parameters, density)
    needed_bytes = measured_bytes_per_pixel * 96e6

    assert needed_bytes <= bound_bytes < 1.17 * needed_bytes


def test_a_picture_of_usual_density_is_charged_by_its_header() -> None:
    """Up to 0.04 keypoints per pixel nothing is added; above, 128 bytes for each."""
    photo, parameters = record(8_000, 6_000), FeatureParameters(extractor="sift")
    bounds = [peak_bound_bytes(photo, parameters, density) for density in (0.0, 0.04, 0.041)]

    assert bounds[0] == bounds[1] < bounds[2]


def test_shrinking_limits_the_bound() -> None:
    """At 3200 pixels a photo of 100 megapixels needs no more for SIFT than one of 10 does."""
    huge, large = record(12_000, 8_000), record(3_840, 2_560)

    assert bound_mib("sift", huge, 3200) == pytest.approx(bound_mib("sift", large, 3200), rel=0.001)
    assert bound_mib("sift", huge, 3200) < 1700


def _encoded_as(pixels: Any, image_format: str, mode: str, options: dict[str, Any]) -> bytes:
    if mode == "I;16":
        return encoded(pixels.astype(np.uint16) * 16, image_format, **options)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, image_format, **options)
    return file.getvalue()
