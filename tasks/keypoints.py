"""Decides which keypoints and descriptors a gray picture has: SIFT, RootSIFT or ORB.

Reading the picture is the business of :mod:`tasks.decoding`, memory that of
:mod:`tasks.feature_memory`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.decoding import DetectionImage, Gray
from tasks.feature_sets import DESCRIPTOR_BYTES, FeatureSet
from tasks.parameters import FeatureParameters

SIFT_OCTAVE_LAYERS = 3
SIFT_CONTRAST_THRESHOLD = 0.02
SIFT_EDGE_THRESHOLD = 10.0
SIFT_SIGMA_PX = 1.6
ORB_SCALE_FACTOR = 1.2
ORB_LEVELS = 8
ORB_EDGE_PX = 31
ORB_PATCH_PX = 31
ORB_FAST_THRESHOLD = 20

_ROOT_SCALE = 512.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What OpenCV found, as arrays, in its own order."""

    keypoints: Sequence[cv2.KeyPoint]
    fields: NDArray[np.float32]
    """(n, 5): x, y, size, angle in degrees, response; pixels of the detection image."""


def extract(image: DetectionImage, parameters: FeatureParameters) -> FeatureSet:
    """Find at most ``max_features`` keypoints; none is a normal result.

    SIFT keeps the largest scales first, as COLMAP does; ORB the strongest
    responses of each level. Equal inputs give equal bytes on any number of
    threads: the result is sorted by all its fields before it is cut.
    """
    match parameters.extractor:
        case "orb":
            fields, descriptors = _orb(image.pixels, parameters.max_features)
        case "sift":
            fields, components = _sift(image.pixels, parameters.max_features)
            descriptors = _rounded(components)
        case "rootsift":
            fields, components = _sift(image.pixels, parameters.max_features)
            descriptors = root(components)
    return FeatureSet(
        extractor=parameters.extractor,
        width_px=image.full_width_px,
        height_px=image.full_height_px,
        keypoints=_in_full_image(fields, image),
        descriptors=descriptors,
    )


def root(descriptors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return RootSIFT in COLMAP's form: ``uint8(rint(512 * sqrt(d / sum d)))``, zero stays zero.

    ``descriptors``: float32 (n, 128), non-negative. Source of the idea:
    Arandjelovic and Zisserman, "Three things everyone should know to improve
    object retrieval", 2012.
    """
    sums = descriptors.sum(axis=1, keepdims=True)
    ratios = descriptors / np.maximum(sums, np.finfo(np.float32).tiny)
    scaled: NDArray[np.uint8] = np.minimum(np.rint(_ROOT_SCALE * np.sqrt(ratios)), 255.0).astype(np.uint8)
    return scaled


def sift_detector() -> cv2.SIFT:
    """Return the detector that finds all keypoints, however many."""
    return cv2.SIFT.create(
        nfeatures=0,
        nOctaveLayers=SIFT_OCTAVE_LAYERS,
        contrastThreshold=SIFT_CONTRAST_THRESHOLD,
        edgeThreshold=SIFT_EDGE_THRESHOLD,
        sigma=SIFT_SIGMA_PX,
        enable_precise_upscale=True,
    )


def _sift(pixels: Gray, max_features: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    # Two passes, because OpenCV's own limit keeps the strongest responses,
    # and describing all would cost memory without bound.
    detector = sift_detector()
    found = _found(detector.detect(pixels, None))
    x, y, size, angle, response = found.fields.T
    kept = np.lexsort((angle, y, x, -response, -size))[:max_features]
    if not len(kept):
        return found.fields, np.empty((0, DESCRIPTOR_BYTES["sift"]), dtype=np.float32)
    _, descriptors = detector.compute(pixels, [found.keypoints[index] for index in kept])
    return found.fields[kept], np.asarray(descriptors, dtype=np.float32)


def _orb(pixels: Gray, max_features: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    nothing = np.empty((0, 5), np.float32), np.empty((0, DESCRIPTOR_BYTES["orb"]), np.uint8)
    if min(pixels.shape) <= 2 * ORB_EDGE_PX:
        # No pixel is far enough from the border, and OpenCV raises on the tiniest pictures.
        return nothing
    detector = cv2.ORB.create(
        nfeatures=max_features,
        scaleFactor=ORB_SCALE_FACTOR,
        nlevels=ORB_LEVELS,
        edgeThreshold=ORB_EDGE_PX,
        firstLevel=0,
        WTA_K=2,
        scoreType=cv2.ORB_HARRIS_SCORE,
        patchSize=ORB_PATCH_PX,
        fastThreshold=ORB_FAST_THRESHOLD,
    )
    keypoints, descriptors = detector.detectAndCompute(pixels, None)
    if len(keypoints) == 0:
        return nothing
    found = _found(keypoints)
    x, y, size, angle, response = found.fields.T
    kept = np.lexsort((angle, size, y, x, -response))[:max_features]
    return found.fields[kept], np.asarray(descriptors, dtype=np.uint8)[kept]


def _found(keypoints: Sequence[cv2.KeyPoint]) -> _Found:
    fields = np.empty((len(keypoints), 5), dtype=np.float32)
    for row, point in zip(fields, keypoints, strict=True):
        row[:] = (*point.pt, point.size, point.angle, point.response)
    return _Found(keypoints=keypoints, fields=fields)


def _rounded(descriptors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Store SIFT as it is: OpenCV's floats are whole numbers from 0 to 255."""
    return np.clip(np.rint(descriptors), 0.0, 255.0).astype(np.uint8)


def _in_full_image(fields: NDArray[np.float32], image: DetectionImage) -> NDArray[np.float32]:
    """Scale keypoints to the full photo.

    Pixel areas, not pixel centres, are scaled, hence the half pixel:
    ``x_full = (x + 0.5) * full_width / width - 0.5``.
    """
    height, width = image.pixels.shape
    x_ratio, y_ratio = image.full_width_px / width, image.full_height_px / height
    x, y, size, angle_degrees, _ = fields.astype(np.float64).T
    columns = (
        (x + 0.5) * x_ratio - 0.5,
        (y + 0.5) * y_ratio - 0.5,
        size * np.sqrt(x_ratio * y_ratio),
        np.deg2rad(angle_degrees),
    )
    return np.stack(columns, axis=1).astype(np.float32)
