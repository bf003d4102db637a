"""Decides which images look alike: the query of the visual index, for a window of sources at once.

How sets enter the index is in :mod:`tasks.visual_index`. Knows no pairs and no jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.binary_codes import KEY_BITS, TABLES, Keys
from tasks.errors import MissingArtefactError
from tasks.index_memberships import Roster, discard_roster, read_roster
from tasks.index_segments import MAX_FEATURES, MAX_SETS, Segment, read_segment
from tasks.participants import run_shared
from tasks.store import Store

MAX_BUCKET_POSTINGS = 256
"""Larger buckets are skipped: what stands in so many sets tells nothing."""
MAX_READERS = 4
"""So many segments are in memory at a time, at most; more threads would wait for the disk."""
KEPT_HITS = 1 << 20
"""Hits (6 bytes) kept from the first pass over the segments; beyond, segments are read twice."""

_COARSE_SHIFT = 6
_EXPANSION = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An image that resembles a source; ``score = evidence / features of the source``."""

    position: int
    """Among the sets that were asked for."""
    evidence: int
    """How many of the source's features meet the image at least once."""
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """The keys of a window's features, each once, and which features have it.

    Features are numbered through the window: source * 1024 + rank.
    ``features[offsets[k]:offsets[k + 1]]`` have key number k.
    """

    keys: Keys
    offsets: NDArray[np.int64]
    features: NDArray[np.uint32]
    coarse: NDArray[np.bool_]
    """Tells of each key >> 6 whether any key of the window begins so: most postings end here."""

    def hits_of(self, segment: Segment, live: NDArray[np.bool_]) -> "_Hits":
        """Return the postings of live rows (16,) under the window's keys."""
        near = np.flatnonzero(self.coarse[segment.keys >> _COARSE_SHIFT])
        keys, rows = segment.keys[near], segment.rows[near]
        numbers = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        met = (self.keys[numbers] == keys) & live[rows]
        return _Hits(numbers=numbers[met].astype(np.uint32), rows=rows[met])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hits:
    """Postings of a segment that the window meets: ``numbers`` uint32 (H,) of keys, ``rows`` uint16 (H,)."""

    numbers: NDArray[np.uint32]
    rows: NDArray[np.uint16]

    def below(self, is_small: NDArray[np.bool_]) -> "_Hits":
        """Return the hits in small buckets (by key number)."""
        kept = is_small[self.numbers]
        return _Hits(numbers=self.numbers[kept], rows=self.rows[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualIndex:
    """The index as a project sees it: its own sets, in the order of ``set_digests``."""

    store: Store
    set_digests: tuple[str, ...]
    roster: Roster = field(repr=False)

    @classmethod
    def of(cls, store: Store, set_digests: Sequence[str]) -> "VisualIndex":
        """Return the index of these sets.

        Raises:
            MissingArtefactError: one of them is not (any longer) indexed.
        """
        digests = tuple(set_digests)
        return cls(store=store, set_digests=digests, roster=read_roster(store, digests))

    def neighbours(self, sources: Sequence[int], top_k: int, threads: int) -> list[list[Neighbour]]:
        """Return the images most like each source (positions of sets), best first.

        Ordered by score and evidence, falling, then position; the source
        itself is left out. The answer depends on the sets alone, not on how
        they were cut into segments nor on ``threads``.

        Raises:
            MissingArtefactError: a segment is lost, or was damaged and is discarded now.
        """
        try:
            counts, query = self._query(sources)
            evidence = self._evidence(query, len(sources), threads)
        except MissingArtefactError:
            discard_roster(self.store, self.set_digests)
            raise
        return [
            _ranked(evidence[number], source, counts[number], top_k) for number, source in enumerate(sources)
        ]

    def _query(self, sources: Sequence[int]) -> tuple[list[int], _Query]:
        """Gather the sources' keys from the segments they stand in; also how many features each has."""
        counts = [0] * len(sources)
        keys = np.empty(len(sources) * MAX_FEATURES * TABLES, np.uint32)
        features = np.empty_like(keys)
        end = 0
        segment_of, row_of = self.roster.segment_of, self.roster.row_of
        for number in sorted(set(segment_of[list(sources)].tolist())):
            segment = read_segment(self.store, self.roster.segments[number])
            for place, source in enumerate(sources):
                if segment_of[source] != number:
                    continue
                row = int(row_of[source])
                own_keys, own_features = segment.keys_of(row)
                keys[end : end + len(own_keys)] = own_keys
                features[end : end + len(own_keys)] = own_features + np.uint32(place * MAX_FEATURES)
                end += len(own_keys)
                counts[place] = int(segment.features[row])
        return counts, _query_of(keys[:end], features[:end])

    def _evidence(self, query: _Query, sources: int, threads: int) -> NDArray[np.uint16]:
        """Count for each source and set how many of the source's features meet it: (sources, N)."""
        evidence = np.zeros((sources, len(self.set_digests)), np.uint16)
        if not len(query.keys):
            return evidence
        totals = np.zeros(len(query.keys), np.int64)
        kept: list[_Hits] = []
        kept_hits = 0
        for hits in self._all_hits(query, 0, threads):
            totals += np.bincount(hits.numbers, minlength=len(totals))
            if kept_hits <= KEPT_HITS:
                kept.append(hits)
                kept_hits += len(hits.numbers)
        is_small = totals <= MAX_BUCKET_POSTINGS
        for number, hits in enumerate(self._hits_again(query, kept, threads)):
            live = self.roster.live_sets(number)
            counted = _features_met(query, hits.below(is_small), sources)
            evidence[:, live[live >= 0]] = counted[:, live >= 0]
        return evidence

    def _hits_again(self, query: _Query, kept: Sequence[_Hits], threads: int) -> Iterator[_Hits]:
        yield from kept
        yield from self._all_hits(query, len(kept), threads)

    def _all_hits(self, query: _Query, start: int, threads: int) -> Iterator[_Hits]:
        """Yield the hits of each segment from number ``start`` on, read by the participants."""
        readers = min(threads, MAX_READERS)

        def read(number: int) -> _Hits:
            segment = read_segment(self.store, self.roster.segments[number])
            return query.hits_of(segment, self.roster.live_sets(number) >= 0)

        for begin in range(start, len(self.roster.segments), readers):
            group = range(begin, min(begin + readers, len(self.roster.segments)))
            yield from run_shared(read, group, threads)


def _query_of(keys: Keys, features: NDArray[np.uint32]) -> _Query:
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    begins = np.flatnonzero(is_first)
    coarse = np.zeros((TABLES << KEY_BITS) >> _COARSE_SHIFT, np.bool_)
    coarse[keys >> _COARSE_SHIFT] = True
    return _Query(
        keys=keys[begins], offsets=np.append(begins, len(keys)), features=features[order], coarse=coarse
    )


def _features_met(query: _Query, hits: _Hits, sources: int) -> NDArray[np.int64]:
    """Count the distinct features of each source that meet each row of a segment: (sources, 16)."""
    met = np.zeros((sources * MAX_FEATURES, MAX_SETS), np.bool_)
    sharing = np.diff(query.offsets)[hits.numbers]
    ends = np.cumsum(sharing)
    begin = 0
    # A hit meets every feature that has its key; a bounded number of meetings at a time.
    while begin < len(ends):
        before = ends[begin] - sharing[begin]
        end = max(begin + 1, int(np.searchsorted(ends, before + _EXPANSION, side="right")))
        lengths = sharing[begin:end]
        within = np.arange(ends[end - 1] - before) - np.repeat(ends[begin:end] - lengths - before, lengths)
        places = np.repeat(query.offsets[hits.numbers[begin:end]], lengths) + within
        met[query.features[places], np.repeat(hits.rows[begin:end], lengths)] = True
        begin = end
    of_source = met.reshape(sources, MAX_FEATURES, MAX_SETS)
    counted: NDArray[np.int64] = np.count_nonzero(of_source, axis=1)
    return counted


def _ranked(evidence: NDArray[np.uint16], source: int, features: int, top_k: int) -> list[Neighbour]:
    """Return the best sets of one source; the score is the evidence over a constant, so it orders alike."""
    found = np.flatnonzero(evidence)
    found = found[found != source]
    best = found[np.lexsort((found, -evidence[found].astype(np.int64)))][:top_k]
    return [
        Neighbour(position=int(place), evidence=int(evidence[place]), score=float(evidence[place]) / features)
        for place in best
    ]
