"""Tests of keypoints and descriptors."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.decoding import DetectionImage, Gray, shrink
from tasks.feature_sets import DESCRIPTOR_BYTES, FeatureSet
from tasks.keypoints import extract, root
from tasks.opencv_threads import opencv_threads
from tasks.parameters import Extractor, FeatureParameters
from tests.unit.tasks.photo_builders import textured

EXTRACTORS: tuple[Extractor, ...] = ("orb", "sift", "rootsift")


def features_of(
    pixels: Gray, extractor: Extractor, *, max_features: int = 8192, max_image_size_px: int = 3200
) -> FeatureSet:
    """Extract from a picture as a stage would."""
    parameters = FeatureParameters(
        extractor=extractor, max_features=max_features, max_image_size_px=max_image_size_px
    )
    return extract(shrink(pixels, max_image_size_px), parameters)


def blob(x: float, y: float, radius_px: float, size: int = 256) -> Gray:
    """Return a bright Gaussian blob centred at (x, y), pixel centres at whole numbers."""
    rows, columns = np.mgrid[0:size, 0:size]
    square = (columns - x) ** 2 + (rows - y) ** 2
    pixels: NDArray[np.uint8] = np.rint(200.0 * np.exp(-square / (2.0 * radius_px**2))).astype(np.uint8)
    return pixels


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_features_have_their_form(extractor: Extractor) -> None:
    """Types, shapes and ranges are those that the store promises."""
    features = features_of(textured(320, 240), extractor)
    x, y, size, angle = features.keypoints.T

    assert features.keypoints.dtype == np.float32
    assert features.descriptors.dtype == np.uint8
    assert features.descriptors.shape == (len(features.keypoints), DESCRIPTOR_BYTES[extractor])
    assert len(x) > 100
    assert x.min() >= -0.5
    assert x.max() <= 319.5
    assert y.max() <= 239.5
    assert size.min() > 0.0
    assert 0.0 <= angle.min() <= angle.max() <= np.float32(2 * np.pi)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_number_of_threads_does_not_show(extractor: Extractor) -> None:
    """One, two and four threads give the same bytes."""
    pixels, results = textured(640, 480), []
    for threads in (1, 2, 4):
        with opencv_threads(threads):
            features = features_of(pixels, extractor, max_features=500, max_image_size_px=600)
        results.append(features.keypoints.tobytes() + features.descriptors.tobytes())

    assert results[0] == results[1] == results[2]


def test_the_number_of_threads_is_restored() -> None:
    """A callback leaves OpenCV as it found it, even when it raises."""
    cv2.setNumThreads(2)
    with pytest.raises(RuntimeError), opencv_threads(1):
        raise RuntimeError

    assert cv2.getNumThreads() == 2


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_at_most_the_asked_number_is_kept(extractor: Extractor) -> None:
    """Ties at the limit do not lead beyond it."""
    assert len(features_of(textured(320, 240), extractor, max_features=50).keypoints) == 50


def test_sift_keeps_the_largest_scales_first() -> None:
    """Fifty of all are the fifty largest, and stand at the front of all."""
    everything = features_of(textured(320, 240), "sift").keypoints
    kept = features_of(textured(320, 240), "sift", max_features=50).keypoints

    assert np.all(np.diff(everything[:, 2]) <= 0.0)
    assert np.array_equal(kept, everything[:50])


@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (2, 3), (16, 16), (62, 62), (63, 63), (64, 3)])
def test_a_tiny_or_empty_picture_has_no_features(extractor: Extractor, shape: tuple[int, int]) -> None:
    """No keypoints is a normal result with its usual form."""
    features = features_of(np.full(shape, 90, dtype=np.uint8), extractor)

    assert features.keypoints.shape == (0, 4)
    assert features.descriptors.shape == (0, DESCRIPTOR_BYTES[extractor])


def test_sift_finds_a_blob_at_its_centre() -> None:
    """Without the precise upscaling the centre would be off by a quarter pixel."""
    features = features_of(blob(100.3, 120.6, 2.0), "sift")
    distances = np.hypot(features.keypoints[:, 0] - 100.3, features.keypoints[:, 1] - 120.6)

    assert distances.min() < 0.05


def test_coordinates_are_given_in_the_full_picture() -> None:
    """A blob found in a picture of half the size is where it was, half pixel included."""
    features = features_of(blob(200.5, 300.5, 12.0, size=512), "sift", max_image_size_px=256)
    distances = np.hypot(features.keypoints[:, 0] - 200.5, features.keypoints[:, 1] - 300.5)
    nearest = features.keypoints[distances.argmin()]
    direct = features_of(blob(200.5, 300.5, 12.0, size=512), "sift").keypoints
    direct_nearest = direct[np.hypot(direct[:, 0] - 200.5, direct[:, 1] - 300.5).argmin()]

    assert distances.min() < 0.1
    assert nearest[2] == pytest.approx(direct_nearest[2], rel=0.1)


def test_each_side_has_its_own_ratio() -> None:
    """Rounding a side to whole pixels does not shift keypoints along it."""
    pixels, parameters = textured(320, 240), FeatureParameters(extractor="sift")
    plain = extract(DetectionImage(pixels=pixels, full_width_px=320, full_height_px=240), parameters)
    wide = extract(DetectionImage(pixels=pixels, full_width_px=640, full_height_px=240), parameters)

    assert np.allclose(wide.keypoints[:, 0], 2 * plain.keypoints[:, 0] + 0.5, atol=1e-3)
    assert np.array_equal(wide.keypoints[:, 1], plain.keypoints[:, 1])


def test_rootsift_is_colmaps_form() -> None:
    """512 times the root of the L1-normalised component, rounded; zero stays zero."""
    descriptors = np.zeros((2, 128), dtype=np.float32)
    descriptors[0, :2] = (30.0, 90.0)
    expected = np.zeros((2, 128), dtype=np.uint8)
    expected[0, :2] = (255, 255)
    spread = np.full((1, 128), 7.0, dtype=np.float32)

    assert np.array_equal(root(descriptors), expected)
    assert np.array_equal(root(spread), np.full((1, 128), round(512 * (1 / 128) ** 0.5), dtype=np.uint8))


def test_rootsift_belongs_to_the_same_keypoints_as_sift() -> None:
    """Only the descriptors differ, and each is the root of the other."""
    sift, rootsift = (features_of(textured(320, 240), extractor) for extractor in ("sift", "rootsift"))

    assert np.array_equal(sift.keypoints, rootsift.keypoints)
    assert np.array_equal(root(sift.descriptors.astype(np.float32)), rootsift.descriptors)
