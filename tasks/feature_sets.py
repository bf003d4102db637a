"""Holds the feature set of one photo: its name in the store, its file, its checks on reading.

How features are found is decided in :mod:`tasks.keypoints`; this module
needs no image library, so that matching can read sets without one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import CorruptArtefactError
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import ArtefactKey, Json, Store, artefact_key

FEATURES_VERSION = 1
"""Part of every feature set's name: raise it when extraction gives other bytes."""
FEATURE_KINDS: dict[Extractor, str] = {
    "orb": "features.extract",
    "sift": "features.extract.sift",
    "rootsift": "features.extract.rootsift",
}
DESCRIPTOR_BYTES: dict[Extractor, int] = {"sift": 128, "rootsift": 128, "orb": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """The keypoints of one photo, best first, each with its descriptor."""

    extractor: Extractor
    width_px: int
    height_px: int
    """Size of the full photo."""
    keypoints: NDArray[np.float32]
    """(n, 4): x, y, size, angle; pixels of the full photo, (0, 0) = centre of the first
    pixel (OpenCV's convention); size = diameter; angle in radians."""
    descriptors: NDArray[np.uint8]
    """(n, 128) for SIFT and RootSIFT, (n, 32) for ORB."""


def features_key(content: str, parameters: FeatureParameters) -> ArtefactKey:
    """Return the name of the feature set of the photo ``content`` (its SHA-256)."""
    return artefact_key(FEATURE_KINDS[parameters.extractor], FEATURES_VERSION, parameters, [content])


def publish_feature_set(store: Store, key: ArtefactKey, features: FeatureSet) -> None:
    """Publish a feature set."""
    arrays: dict[str, NDArray[Any]] = {"keypoints": features.keypoints, "descriptors": features.descriptors}
    size: dict[str, Json] = {"width_px": features.width_px, "height_px": features.height_px}
    store.publish(key, arrays, {"extractor": features.extractor, **size})


def read_feature_set(store: Store, key: ArtefactKey) -> FeatureSet:
    """Read a feature set and check its form.

    Raises:
        MissingArtefactError: it is not published.
        CorruptArtefactError: damaged, or not of a feature set's form; extract again.
    """
    artefact = store.read(key)
    try:
        features = FeatureSet(
            extractor=artefact.metadata["extractor"],
            width_px=artefact.metadata["width_px"],
            height_px=artefact.metadata["height_px"],
            keypoints=artefact.arrays["keypoints"],
            descriptors=artefact.arrays["descriptors"],
        )
    except KeyError as error:
        raise CorruptArtefactError(f"{key.kind} {key.digest} lacks its {error}") from error
    if not _is_well_formed(features):
        raise CorruptArtefactError(f"{key.kind} {key.digest} is not a well-formed feature set")
    return features


def _is_well_formed(features: FeatureSet) -> bool:
    count, columns = len(features.keypoints), DESCRIPTOR_BYTES.get(features.extractor)
    return (
        features.keypoints.dtype == np.float32
        and features.keypoints.shape == (count, 4)
        and features.descriptors.dtype == np.uint8
        and features.descriptors.shape == (count, columns)
        and bool(np.isfinite(features.keypoints).all())
    )
