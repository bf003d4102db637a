"""Holds which segment of the visual index counts for a feature set: its membership, and a project's roster.

A membership's name is known before the work, a segment's is not: which sets
share one depends on the moment. A set may stand in several segments (a batch
that was delivered twice); its membership says the one that counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import MissingArtefactError
from tasks.index_segments import INDEX_VERSION, MAX_SETS, SEGMENT_KIND
from tasks.inputs import read_input
from tasks.store import ArtefactKey, Store, artefact_key

INDEX_KIND = "visual_index.update"
ROSTER_KIND = "visual_index.roster"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Where one feature set is indexed."""

    segment: ArtefactKey
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Where all feature sets of a project are indexed, in one file that saves reading each membership.

    ``segment_of`` and ``row_of`` uint32 (N,) belong to the sets in the order
    they were asked for; ``segments`` are those that hold any of them.
    """

    segments: tuple[ArtefactKey, ...]
    segment_of: NDArray[np.uint32]
    row_of: NDArray[np.uint32]

    def live_sets(self, segment: int) -> NDArray[np.int64]:
        """Return which set each row of a segment counts for (16,); -1 = none of the project's."""
        sets = np.full(MAX_SETS, -1, np.int64)
        members = np.flatnonzero(self.segment_of == segment)
        sets[self.row_of[members]] = members
        return sets


def membership_key(set_digest: str) -> ArtefactKey:
    """Return the name of the membership of a feature set (the digest of its key)."""
    return artefact_key(INDEX_KIND, INDEX_VERSION, {}, [set_digest])


def publish_membership(store: Store, set_digest: str, membership: Membership) -> None:
    """State where a set is indexed; what is stated already stays."""
    row = np.array([membership.row], np.uint32)
    store.publish(membership_key(set_digest), {"row": row}, {"segment": membership.segment.digest})


def read_membership(store: Store, set_digest: str) -> Membership:
    """Return where a set is indexed; the segment may be lost.

    Raises:
        MissingArtefactError: it is not indexed, or what says so was damaged and is discarded now.
    """
    artefact = read_input(store, membership_key(set_digest))
    return Membership(
        segment=ArtefactKey(kind=SEGMENT_KIND, digest=artefact.metadata["segment"]),
        row=int(artefact.arrays["row"][0]),
    )


def is_indexed(store: Store, set_digest: str) -> bool:
    """Tell whether a set is indexed: its membership and the segment are there."""
    try:
        return store.has(read_membership(store, set_digest).segment)
    except MissingArtefactError:
        return False


def read_roster(store: Store, set_digests: Sequence[str]) -> Roster:
    """Return where the sets are indexed; written down for the next one to ask.

    Raises:
        MissingArtefactError: a set is not (any longer) indexed.
    """
    key = _roster_key(set_digests)
    if not store.has(key):
        _publish_roster(store, key, [read_membership(store, digest) for digest in set_digests])
    arrays: Mapping[str, NDArray[np.uint32]] = read_input(store, key).arrays
    digests = arrays["segments"].astype(np.uint8)
    return Roster(
        segments=tuple(ArtefactKey(kind=SEGMENT_KIND, digest=bytes(row).hex()) for row in digests),
        segment_of=arrays["segment_of"],
        row_of=arrays["row_of"],
    )


def discard_roster(store: Store, set_digests: Sequence[str]) -> None:
    """Forget a roster that names a segment which is lost."""
    store.discard(_roster_key(set_digests))


def _roster_key(set_digests: Sequence[str]) -> ArtefactKey:
    return artefact_key(ROSTER_KIND, INDEX_VERSION, {}, set_digests)


def _publish_roster(store: Store, key: ArtefactKey, memberships: Sequence[Membership]) -> None:
    segments = sorted({membership.segment.digest for membership in memberships})
    number = {digest: position for position, digest in enumerate(segments)}
    hashes = np.frombuffer(bytes.fromhex("".join(segments)), np.uint8)
    arrays: dict[str, NDArray[Any]] = {
        "segments": hashes.reshape(-1, _DIGEST_BYTES),
        "segment_of": np.array([number[m.segment.digest] for m in memberships], np.uint32),
        "row_of": np.array([m.row for m in memberships], np.uint32),
    }
    store.publish(key, arrays, {})
