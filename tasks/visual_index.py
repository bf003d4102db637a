"""Holds the kind ``visual_index.update``: feature sets enter the index, a batch at a time.

What a query makes of the index is in :mod:`tasks.retrieval`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from governor.model import Estimate, Grant
from tasks.binary_codes import table_keys
from tasks.errors import MissingArtefactError
from tasks.estimate_forms import EstimateForms
from tasks.feature_sets import FeatureSet, features_key
from tasks.index_memberships import (
    INDEX_KIND,
    Membership,
    is_indexed,
    membership_key,
    publish_membership,
    read_membership,
)
from tasks.index_segments import (
    INDEX_VERSION,
    MAX_FEATURES,
    MAX_SETS,
    POSTINGS_PER_SET,
    pack,
    publish_segment,
)
from tasks.inputs import read_features
from tasks.kind import Done, Job, Kind, NotReady, Outcome, Payload
from tasks.pair_jobs import Content
from tasks.parameters import FeatureParameters
from tasks.participants import run_shared
from tasks.store import Project, Store

INDEX_STAGE = "index"


class IndexPayload(Payload):
    """Enter the features of one image into the index."""

    image: Content
    features: FeatureParameters = FeatureParameters()
    project: str | None = None
    """The project that the job belongs to; changes nothing in the result."""

    @property
    def set_digest(self) -> str:
        """What the index calls the feature set."""
        return features_key(self.image, self.features).digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """One participant's part of the batch's buffer, and what is to be filled in."""

    payload: IndexPayload
    row: int
    postings: NDArray[np.uint64]


def index_job(project: Project, content: str) -> Job:
    """Return the job that enters one image's features into the index."""
    payload = IndexPayload(image=content, features=project.parameters.features, project=project.id)
    return Job(
        kind=INDEX_KIND,
        payload=payload.model_dump(mode="json"),
        project=project.id,
        stage=INDEX_STAGE,
        item=content,
    )


def run_index(payloads: Sequence[IndexPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish one segment of the batch's new feature sets, then the membership of each.

    Killed in between, the segment stands alone and counts for nobody; whoever
    comes next publishes the same one or another. Recorded: memberships committed.
    """
    lost: dict[str, str] = {}
    new = {payload.set_digest: payload for payload in payloads if not _is_done(store, payload)}
    memberships = _publish(new, grant, store, lost)
    for payload in payloads:
        digest = payload.set_digest
        if digest in lost:
            yield NotReady(cause=lost[digest])
            continue
        membership = memberships.pop(digest, None)
        yield Done(recorded_items=0) if membership is None else _commit(store, digest, membership)


def _is_done(store: Store, payload: IndexPayload) -> bool:
    """Tell whether a set is indexed; a membership of a lost segment is taken back."""
    digest = payload.set_digest
    if is_indexed(store, digest):
        return True
    if store.has(membership_key(digest)):
        store.discard(membership_key(digest))
    return False


def _publish(
    new: Mapping[str, IndexPayload], grant: Grant, store: Store, lost: dict[str, str]
) -> dict[str, Membership]:
    """Publish the segment of the sets that can be read; return where each is, note the others in ``lost``."""
    digests = sorted(new)
    if not digests:
        return {}
    buffer = np.empty((len(digests), POSTINGS_PER_SET), np.uint64)
    slices = [
        _Slice(payload=new[digest], row=row, postings=buffer[row]) for row, digest in enumerate(digests)
    ]
    counts = run_shared(lambda part: _fill(part, store), slices, grant.cpu_threads)
    unread = {digest: count for digest, count in zip(digests, counts, strict=True) if isinstance(count, str)}
    if unread:
        # Rare. The rest is read again, so that its rows are those of its own name.
        lost.update(unread)
        return _publish({d: p for d, p in new.items() if d not in unread}, grant, store, lost)
    features = [count for count in counts if isinstance(count, int)]
    segment = publish_segment(store, digests, _compact(buffer, features), features)
    return {digest: Membership(segment=segment, row=row) for row, digest in enumerate(digests)}


def _fill(part: _Slice, store: Store) -> int | str:
    """Fill a slice from one feature file; return how many features are indexed, or why none can be."""
    try:
        features = read_features(store, part.payload.image, part.payload.features)
    except MissingArtefactError as error:
        return str(error)
    best = ranked(features)[:MAX_FEATURES]
    postings = pack(table_keys(features.descriptors[best], features.extractor), part.row)
    part.postings[: len(postings)] = postings
    return len(best)


def ranked(features: FeatureSet) -> NDArray[np.intp]:
    """Return the order in which features are indexed: the largest scale first, then as in the set.

    Large features are met again from farther away. SIFT's sets are in this
    order; ORB's are by response, which finds fewer pairs (docs/retrieval.md).
    """
    return np.argsort(-features.keypoints[:, 2], kind="stable")


def _compact(buffer: NDArray[np.uint64], features: Sequence[int]) -> NDArray[np.uint64]:
    """Move the filled parts of the slices together, within the buffer; return them (flat)."""
    flat, end = buffer.reshape(-1), 0
    for row, count in enumerate(features):
        length = count * (POSTINGS_PER_SET // MAX_FEATURES)
        flat[end : end + length] = buffer[row, :length]
        end += length
    return flat[:end]


def _commit(store: Store, digest: str, membership: Membership) -> Outcome:
    """Publish a membership; it is recorded if it is the one that counts now."""
    publish_membership(store, digest, membership)
    try:
        return Done(recorded_items=int(read_membership(store, digest) == membership))
    except MissingArtefactError as error:
        # Another node has just taken it back: it saw the old one, whose segment was lost.
        return NotReady(cause=str(error))


KINDS = (
    Kind(
        name=INDEX_KIND,
        version=INDEX_VERSION,
        stage=INDEX_STAGE,
        estimate=Estimate(
            memory_fixed_bytes=8 << 20,
            memory_per_item_bytes=2 << 20,
            max_batch=MAX_SETS,
            cpu_threads=12,
            io_slots=1,
        ),
        forms=EstimateForms(),
        payload=IndexPayload,
        run=run_index,
        # One segment of all: until it is there, every item is at risk.
        window=lambda grant: grant.batch,
    ),
)
