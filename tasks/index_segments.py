"""Holds one segment of the visual index: up to 16 feature sets, filed under their keys, never changed.

A segment is named by its sets, and says nothing about which of them count:
that is said by the memberships (:mod:`tasks.index_memberships`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.binary_codes import KEY_BITS, TABLES, Keys
from tasks.errors import CorruptArtefactError, MissingArtefactError
from tasks.inputs import read_input
from tasks.store import ArtefactKey, Json, Store, artefact_key

INDEX_VERSION = 1
"""Part of the names of segments and memberships: raise it when the same sets give other postings."""
SEGMENT_KIND = "visual_index.segment"
MAX_SETS = 16
MAX_FEATURES = 1024
"""So many features of a set are indexed: the first by rank."""
POSTINGS_PER_SET = MAX_FEATURES * TABLES

FEATURE_BITS = 10
PLACE_BITS = 16
_KEY_LIMIT = TABLES << KEY_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The postings of some feature sets, strictly sorted by (table, key, set, feature).

    ``keys`` uint32 (P,): table << 24 | key. ``places`` uint16 (P,): the set's
    row << 10 | the feature's rank. ``features`` uint16 (S,): how many features
    of each row are indexed.
    """

    keys: Keys
    places: NDArray[np.uint16]
    features: NDArray[np.uint16]

    @property
    def rows(self) -> NDArray[np.uint16]:
        """Return the row of each posting's set (P,)."""
        rows: NDArray[np.uint16] = self.places >> np.uint16(FEATURE_BITS)
        return rows

    def keys_of(self, row: int) -> tuple[Keys, NDArray[np.uint16]]:
        """Return the keys of one set's postings and the features they are of, by key."""
        own = self.rows == row
        return self.keys[own], self.places[own] & (MAX_FEATURES - 1)


def segment_key(set_digests: Sequence[str]) -> ArtefactKey:
    """Return the name of the segment that holds these sets (digests of their keys, sorted)."""
    return artefact_key(SEGMENT_KIND, INDEX_VERSION, {}, set_digests)


def pack(keys: Keys, row: int) -> NDArray[np.uint64]:
    """Return the postings of one set, one number each, whose order is that of a segment.

    ``keys``: uint32 (n, 6) of its features in rank order, at most 1024.
    """
    features = np.arange(len(keys), dtype=np.uint64)[:, None]
    row_bits = np.uint64(row << FEATURE_BITS)
    postings: NDArray[np.uint64] = (keys.astype(np.uint64) << np.uint64(PLACE_BITS)) | row_bits | features
    return postings.reshape(-1)


def publish_segment(
    store: Store, set_digests: Sequence[str], postings: NDArray[np.uint64], feature_counts: Sequence[int]
) -> ArtefactKey:
    """Publish a segment of packed postings, which are sorted in place; row i is the i-th set."""
    key = segment_key(set_digests)
    if store.has(key):
        return key
    postings.sort()
    arrays: dict[str, NDArray[Any]] = {
        "keys": (postings >> np.uint64(PLACE_BITS)).astype(np.uint32),
        "places": (postings & np.uint64((1 << PLACE_BITS) - 1)).astype(np.uint16),
        "features": np.array(feature_counts, np.uint16),
    }
    sets: list[Json] = list(set_digests)
    store.publish(key, arrays, {"sets": sets})
    return key


def read_segment(store: Store, key: ArtefactKey) -> Segment:
    """Read a segment and check its form.

    Raises:
        MissingArtefactError: it is not there, or was damaged and is discarded now.
        StoreError: the store cannot be read.
    """
    arrays = read_input(store, key).arrays
    try:
        segment = Segment(keys=arrays["keys"], places=arrays["places"], features=arrays["features"])
        _check(segment)
    except (KeyError, CorruptArtefactError) as error:
        store.discard(key)
        raise MissingArtefactError(f"{key.kind} {key.digest} is no segment; it is discarded") from error
    return segment


def _check(segment: Segment) -> None:
    count, sets = len(segment.keys), len(segment.features)
    is_well_formed = (
        segment.keys.dtype == np.uint32
        and segment.places.dtype == np.uint16
        and segment.features.dtype == np.uint16
        and segment.places.shape == segment.keys.shape == (count,)
        and 1 <= sets <= MAX_SETS
        and count == TABLES * int(segment.features.sum(dtype=np.int64))
        and int(segment.features.max()) <= MAX_FEATURES
        and (count == 0 or (int(segment.keys.max()) < _KEY_LIMIT and int(segment.rows.max()) < sets))
    )
    if not is_well_formed:
        raise CorruptArtefactError("the postings do not fit their sets")
