"""Tests of the feature set's file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.errors import CorruptArtefactError
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set, read_feature_set
from tasks.parameters import FeatureParameters
from tasks.store import Json
from tests.unit.tasks.photo_builders import store_at

KEY = features_key("a" * 64, FeatureParameters(extractor="orb"))
METADATA: dict[str, Json] = {"extractor": "orb", "width_px": 4, "height_px": 3}


def arrays(count: int = 2) -> dict[str, NDArray[Any]]:
    """Return the arrays of a well-formed ORB set."""
    return {
        "keypoints": np.arange(count * 4, dtype=np.float32).reshape(count, 4),
        "descriptors": np.zeros((count, 32), dtype=np.uint8),
    }


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_set_reads_back(tmp_path: Path, count: int) -> None:
    """An empty set is a set."""
    store, held = store_at(tmp_path), arrays(count)
    features = FeatureSet(
        extractor="orb",
        width_px=4,
        height_px=3,
        keypoints=held["keypoints"],
        descriptors=held["descriptors"],
    )
    publish_feature_set(store, KEY, features)
    read = read_feature_set(store, KEY)

    assert (read.extractor, read.width_px, read.height_px) == ("orb", 4, 3)
    assert np.array_equal(read.keypoints, features.keypoints)
    assert np.array_equal(read.descriptors, features.descriptors)


@pytest.mark.parametrize(
    "changes",
    [
        {"keypoints": np.zeros((3, 4), dtype=np.float32)},
        {"keypoints": np.zeros((2, 2), dtype=np.float32)},
        {"keypoints": np.zeros((2, 4), dtype=np.float64)},
        {"keypoints": np.full((2, 4), np.nan, dtype=np.float32)},
        {"descriptors": np.zeros((2, 128), dtype=np.uint8)},
        {"descriptors": np.zeros((2, 32), dtype=np.float32)},
    ],
)
def test_a_set_of_another_form_is_corrupt(tmp_path: Path, changes: dict[str, NDArray[Any]]) -> None:
    """Shape, type and finiteness are checked on reading."""
    store = store_at(tmp_path)
    store.publish(KEY, {**arrays(), **changes}, METADATA)
    with pytest.raises(CorruptArtefactError, match="not a well-formed"):
        read_feature_set(store, KEY)


def test_an_artefact_that_lacks_a_part_is_corrupt(tmp_path: Path) -> None:
    """A missing array is named."""
    store = store_at(tmp_path)
    store.publish(KEY, {"keypoints": arrays()["keypoints"]}, METADATA)
    with pytest.raises(CorruptArtefactError, match="lacks its 'descriptors'"):
        read_feature_set(store, KEY)


def test_every_parameter_is_part_of_the_name() -> None:
    """A changed parameter never meets an old set."""
    keys = {
        features_key(content, FeatureParameters(**changes))
        for content in ("a" * 64, "b" * 64)
        for changes in (
            {},
            {"extractor": "sift"},
            {"extractor": "orb"},
            {"max_features": 100},
            {"max_image_size_px": 100},
        )
    }

    assert len(keys) == 10
