"""Builds stores whose photos were never taken: feature sets of points that cameras see in a row."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from governor.model import Grant
from tasks.feature_sets import DESCRIPTOR_BYTES, FeatureSet, features_key, publish_feature_set
from tasks.parameters import Extractor, ProjectParameters
from tasks.store import ArtefactKey, PhotoRecord, Project, Source, Store

WIDTH_PX, HEIGHT_PX, FOCAL_PX = 1200, 800, 900.0
GRANT = Grant(batch=8, cpu_threads=1, memory_bytes=1 << 30, io_slots=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStore:
    """A store with one project; ``contents`` are the image ids in name order."""

    store: Store
    project: Project
    contents: tuple[str, ...]

    def pair(self, first: int = 0, second: int = 1) -> tuple[str, str]:
        """Return two images as (left, right)."""
        left, right = sorted((self.contents[first], self.contents[second]))
        return left, right

    def has_features(self, content: str) -> bool:
        """Tell whether an image's feature set is there."""
        return self.store.has(features_key(content, self.project.parameters.features))

    def damage_features(self, content: str) -> None:
        """Damage an image's feature file."""
        self.damage(features_key(content, self.project.parameters.features))

    def damage(self, key: ArtefactKey) -> None:
        """Change the last byte of an artefact's file."""
        (path,) = self.store.root.rglob(f"{key.digest}.safetensors")
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def build_scene(
    root: Path,
    *,
    images: int = 3,
    points: int = 120,
    parameters: ProjectParameters | None = None,
    with_features: bool = True,
) -> SceneStore:
    """Create a project whose cameras move along a row and see the same points.

    Feature f of image i is point (f + i) % points, so that indices differ.
    """
    store = Store(root)
    store.create()
    project = store.project("scene")
    names = [f"{number:03}.jpg" for number in range(images)]
    project.create(
        parameters or ProjectParameters(), [Source(name=name, path=f"/photos/{name}") for name in names]
    )
    contents = tuple(hashlib.sha256(name.encode()).hexdigest() for name in names)
    for number, (name, content) in enumerate(zip(names, contents, strict=True)):
        store.record_photo(content, _record())
        project.register(name, content)
        if with_features:
            features = _features(number, points, project.parameters.features.extractor)
            publish_feature_set(store, features_key(content, project.parameters.features), features)
    return SceneStore(store=store, project=project, contents=contents)


def _record() -> PhotoRecord:
    return PhotoRecord(width_px=WIDTH_PX, height_px=HEIGHT_PX, focal_length_px=FOCAL_PX, focal_is_prior=True)


def _features(number: int, points: int, extractor: Extractor) -> FeatureSet:
    rng = np.random.default_rng(0)
    scene = rng.uniform((-4, -2.5, 6), (4, 2.5, 14), (points, 3))
    descriptors = rng.integers(0, 256, (points, DESCRIPTOR_BYTES[extractor]), dtype=np.uint8)
    order = np.roll(np.arange(points), -number)
    return FeatureSet(
        extractor=extractor,
        width_px=WIDTH_PX,
        height_px=HEIGHT_PX,
        keypoints=_keypoints(scene[order], number),
        descriptors=descriptors[order],
    )


def _keypoints(scene: NDArray[np.float64], number: int) -> NDArray[np.float32]:
    seen = scene - (0.4 * number, 0.0, 0.1 * number)
    pixels = seen[:, :2] / seen[:, 2:] * FOCAL_PX + ((WIDTH_PX - 1) / 2, (HEIGHT_PX - 1) / 2)
    return np.column_stack((pixels, np.full((len(scene), 2), 4.0))).astype(np.float32)
