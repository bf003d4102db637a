"""Builds small visual indexes, and the answers they must give by counting one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from governor.model import Grant
from tasks.binary_codes import table_keys
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set
from tasks.index_segments import MAX_FEATURES
from tasks.kind import Outcome
from tasks.parameters import FeatureParameters
from tasks.retrieval import MAX_BUCKET_POSTINGS, VisualIndex
from tasks.store import Store
from tasks.visual_index import IndexPayload, run_index

PARAMETERS = FeatureParameters()
Descriptors = NDArray[np.uint8]
Found = list[tuple[int, int]]
"""(position, evidence) of each neighbour, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedStore:
    """A store with feature sets of made-up images, whose ids rise with their position."""

    store: Store
    sets: tuple[Descriptors, ...]

    @property
    def contents(self) -> list[str]:
        """Return the images' ids."""
        return [content_of(position) for position in range(len(self.sets))]

    @property
    def set_digests(self) -> tuple[str, ...]:
        """Return what the index calls the sets."""
        return tuple(features_key(content, PARAMETERS).digest for content in self.contents)

    def index(self, batches: Sequence[Sequence[int]], threads: int = 1) -> list[Outcome]:
        """Enter the images in batches of positions."""
        outcomes = []
        for batch in batches:
            payloads = [IndexPayload(image=content_of(position)) for position in batch]
            grant = Grant(batch=len(payloads), cpu_threads=threads, memory_bytes=1 << 30, io_slots=1)
            outcomes += list(run_index(payloads, grant, self.store))
        return outcomes

    def index_all(self, size: int = 16) -> list[Outcome]:
        """Enter all images in batches of one size."""
        everyone = range(len(self.sets))
        return self.index([everyone[begin : begin + size] for begin in everyone[::size]])

    def found(self, top_k: int = 64, threads: int = 1) -> list[Found]:
        """Ask for the neighbours of every image at once."""
        index = VisualIndex.of(self.store, self.set_digests)
        answers = index.neighbours(range(len(self.sets)), top_k, threads)
        return [[(found.position, found.evidence) for found in answer] for answer in answers]


def content_of(position: int) -> str:
    """Return the id of the image at a position."""
    return f"{position:064x}"


def build_sets(root: Path, sets: Sequence[Descriptors]) -> IndexedStore:
    """Create a store with these descriptors, all of one scale; nothing is indexed."""
    store = Store(root)
    store.create()
    for position, descriptors in enumerate(sets):
        features = FeatureSet(
            extractor="rootsift",
            width_px=64,
            height_px=64,
            keypoints=np.ones((len(descriptors), 4), np.float32),
            descriptors=descriptors,
        )
        publish_feature_set(store, features_key(content_of(position), PARAMETERS), features)
    return IndexedStore(store=store, sets=tuple(sets))


def overlapping_sets(count: int, features: int = 40, step: int = 10) -> list[Descriptors]:
    """Return sets along a row: each shares features with the next ones, seen with a little noise."""
    rng = np.random.default_rng(0)
    row = rng.integers(0, 256, (step * count + features, 128))
    sets = [row[step * number : step * number + features] for number in range(count)]
    return [np.clip(seen + rng.integers(-6, 7, seen.shape), 0, 255).astype(np.uint8) for seen in sets]


def counted(sets: Sequence[Descriptors], top_k: int = 64) -> list[Found]:
    """Count the neighbours of every set, one key at a time."""
    keys = [table_keys(descriptors[:MAX_FEATURES], "rootsift").tolist() for descriptors in sets]
    totals: dict[int, int] = {}
    for key in (key for of_set in keys for of_feature in of_set for key in of_feature):
        totals[key] = totals.get(key, 0) + 1
    held = [
        {key for of_feature in of_set for key in of_feature if totals[key] <= MAX_BUCKET_POSTINGS}
        for of_set in keys
    ]
    answers = []
    for source, of_source in enumerate(keys):
        evidence = {
            other: sum(not held[other].isdisjoint(of_feature) for of_feature in of_source)
            for other in range(len(sets))
            if other != source
        }
        ranked = sorted((-count, other) for other, count in evidence.items() if count)
        answers.append([(other, -count) for count, other in ranked[:top_k]])
    return answers
