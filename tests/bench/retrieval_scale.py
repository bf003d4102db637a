"""Measures index and query over thousands of synthetic feature sets: time, and peak against reservation."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from governor.model import Grant
from tasks import visual_index
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set
from tasks.index_segments import MAX_FEATURES
from tasks.pairing import pairing_of
from tasks.pairs import PairsPayload, pairs_estimate, run_pairs
from tasks.parameters import PairParameters, PairStrategy, ProjectParameters
from tasks.store import PhotoRecord, Project, Source, Store
from tasks.visual_index import IndexPayload, run_index
from tests.acceptance.measured_peak import peak_bytes

THREADS = 2
ROW_PROJECT = "row"
_FEATURES_PER_STEP = 128
"""So many features come into view from one image to the next: eight images see each."""
_NOISE = 8
_RECORD = PhotoRecord(width_px=1200, height_px=800, focal_length_px=900.0, focal_is_prior=True)
_INDEX_ESTIMATE = visual_index.KINDS[0].estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleFigures:
    """What so many sets took, on two threads."""

    sets: int
    index_seconds_per_set: float
    query_seconds_per_set: float
    recall_of_nearest_ratio: float
    """How many of the seven images on either side that share features with a source were found."""
    index_files_bytes: int
    index_peak_bytes: int
    index_reserved_bytes: int
    query_peak_bytes: int
    query_reserved_bytes: int


def measure_scale(sets: int, root: Path) -> ScaleFigures:
    """Build, index and query a long row of images, of which neighbours see the same features."""
    store, project, contents = build_row(sets, root)
    features = project.parameters.features
    payloads = [IndexPayload(image=content, features=features) for content in contents]
    start = time.monotonic()
    index_sets(payloads[:-16], store)
    index_seconds = time.monotonic() - start
    index_peak = peak_bytes("tasks.visual_index", _INDEX_ESTIMATE, payloads[-16:], THREADS, root)
    estimate = pairs_estimate(pairing_of(project))
    sources = [PairsPayload(project=project.id, image=content) for content in contents]
    query_peak = peak_bytes("tasks.pairs", estimate, sources[:64], THREADS, root)
    middle = sets // 2
    query_seconds, recall = _timed_query(sources, range(middle, middle + 64), store)
    return ScaleFigures(
        sets=sets,
        index_seconds_per_set=index_seconds / (sets - 16),
        query_seconds_per_set=query_seconds / 64,
        recall_of_nearest_ratio=recall,
        index_files_bytes=sum(
            path.stat().st_size for path in (root / "artefacts").glob("visual_index.*/*/*.safetensors")
        ),
        index_peak_bytes=index_peak,
        index_reserved_bytes=_INDEX_ESTIMATE.memory_bytes(16),
        query_peak_bytes=query_peak,
        query_reserved_bytes=estimate.memory_bytes(64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How the images of a row are described, and paired."""

    features_each: int = MAX_FEATURES
    strategy: PairStrategy = "retrieval"
    has_sources: bool = True
    """Without, nobody asks for the photos themselves: there are none."""


def build_row(sets: int, root: Path, row: Row | None = None) -> tuple[Store, Project, list[str]]:
    """Create a project of images in a row; most of the features of one are its neighbours' too."""
    row = row or Row()
    store = Store(root)
    store.create()
    project = store.project(ROW_PROJECT)
    names = [f"{number:06}.jpg" for number in range(sets)]
    parameters = ProjectParameters(pairs=PairParameters(strategy=row.strategy))
    sources = [Source(name=name, path=f"/photos/{name}") for name in names]
    project.create(parameters, sources if row.has_sources else [])
    contents = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    for number, (name, content) in enumerate(zip(names, contents, strict=True)):
        store.record_photo(content, _RECORD)
        project.register(name, content)
        features = FeatureSet(
            extractor="rootsift",
            width_px=_RECORD.width_px,
            height_px=_RECORD.height_px,
            keypoints=np.zeros((row.features_each, 4), np.float32),
            descriptors=_descriptors(number)[: row.features_each],
        )
        publish_feature_set(store, features_key(content, parameters.features), features)
    project.index_registrations()
    return store, project, contents


def _descriptors(number: int) -> NDArray[np.uint8]:
    """Return what image ``number`` sees: eight steps of the row, each seen with a little noise."""
    steps = range(number, number + MAX_FEATURES // _FEATURES_PER_STEP)
    seen = [np.random.default_rng(step).integers(0, 256, (_FEATURES_PER_STEP, 128)) for step in steps]
    noise = np.random.default_rng((number, 1)).integers(-_NOISE, _NOISE + 1, (MAX_FEATURES, 128))
    descriptors: NDArray[np.uint8] = np.clip(np.concatenate(seen) + noise, 0, 255).astype(np.uint8)
    return descriptors


def index_sets(payloads: Sequence[IndexPayload], store: Store) -> None:
    """Enter sets into the index, 16 at a time."""
    for begin in range(0, len(payloads), 16):
        part = payloads[begin : begin + 16]
        memory_bytes = _INDEX_ESTIMATE.memory_bytes(len(part))
        grant = Grant(batch=len(part), cpu_threads=THREADS, memory_bytes=memory_bytes)
        list(run_index(part, grant, store))


def _timed_query(payloads: Sequence[PairsPayload], asked: range, store: Store) -> tuple[float, float]:
    """Return the seconds that a batch took, and the share of true neighbours that it found."""
    batch = [payloads[number] for number in asked]
    pairing = pairing_of(store.project(batch[0].project))
    memory_bytes = pairs_estimate(pairing).memory_bytes(len(batch))
    grant = Grant(batch=len(batch), cpu_threads=THREADS, memory_bytes=memory_bytes)
    start = time.monotonic()
    list(run_pairs(batch, grant, store))
    seconds = time.monotonic() - start
    found = wanted = 0
    for number in asked:
        listed = store.read(pairing.key(payloads[number].image)).arrays["partners"]
        partners = {bytes(row).hex() for row in listed}
        near = {payloads[other].image for other in range(number - 7, number + 8) if other != number}
        found, wanted = found + len(near & partners), wanted + len(near)
    return seconds, found / wanted
