"""Reads which pairs a project's images have proposed, and decides which image each pair belongs to.

A pair stands once, as (smaller id, larger id), whoever proposes it. It
belongs to its smaller image if that proposes it, else to the larger: the
owner's follow-ups, or the planner on the owner's behalf, match it.
"""

from collections.abc import Collection, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.errors import MissingArtefactError
from tasks.inputs import read_input
from tasks.pairing import Pairing, pairing_of
from tasks.store import Project, Store

PAIRS_STAGE = "pairs"
PARTNERS_ARRAY = "partners"
CONTENT_BYTES = 32
_MOST_CACHED_LISTS, _CACHED_BYTES = 1024, 8 << 20

Partners = NDArray[np.uint8]
"""(P, 32): content hashes, sorted."""


class Proposals:
    """The published proposals of a project's images; lists read lately are kept for the next to ask."""

    def __init__(self, store: Store, pairing: Pairing, failed: Collection[str] = ()) -> None:
        """Ask about the images of a pairing; of ``failed`` ones nothing is awaited any more."""
        self._store = store
        self._failed = frozenset(failed)
        self._pairing = pairing
        list_bytes = CONTENT_BYTES * max(1, pairing.most_partners_of_any)
        self._kept = lru_cache(maxsize=min(_MOST_CACHED_LISTS, _CACHED_BYTES // list_bytes))(self._read)

    def are_published(self, content: str) -> bool:
        """Tell whether an image's proposals are there."""
        return self._store.has(self._pairing.key(content))

    def owned_pairs(self, content: str) -> list[tuple[str, str]]:
        """Return the pairs that belong to an image whose proposals are there, sorted.

        A pair whose smaller image has not proposed anything yet belongs to
        nobody so far: the next look will tell.

        Raises:
            MissingArtefactError: the proposals are not (any longer) there.
        """
        if self._pairing.is_mutual:
            # Computed, not read: a look at a large exhaustive project costs one stat per image.
            return [(content, other) for other in self._pairing.partners_by_name(content)]
        others = [bytes(row).hex() for row in self._kept(content)]
        return sorted(
            (content, other) if content < other else (other, content)
            for other in others
            if content < other or self._lacks(other, content)
        )

    def _lacks(self, smaller: str, larger: str) -> bool:
        """Tell whether an image is known not to propose another: its list lacks it, or never comes."""
        if smaller in self._failed:
            return True
        try:
            listed = self._kept(smaller)
        except MissingArtefactError:
            return False
        wanted = np.frombuffer(bytes.fromhex(larger), np.uint8)
        return not bool((listed == wanted).all(axis=1).any())

    def _read(self, content: str) -> Partners:
        partners: Partners = read_input(self._store, self._pairing.key(content)).arrays[PARTNERS_ARRAY]
        return partners


def candidate_pairs(store: Store, project: Project) -> Iterator[tuple[str, str]]:
    """Yield all proposed pairs (smaller id, larger id) of a project, sorted, each once.

    Those of an image whose generation has failed for good are left out.

    Raises:
        MissingArtefactError: the pairs of an image are not (any longer) there;
            before the first pair.
    """
    pairing = pairing_of(project)
    ids = pairing.by_id
    for code in _pair_codes(store, pairing, project.failed_items(PAIRS_STAGE)):
        smaller, larger = divmod(int(code), len(ids))
        yield ids[smaller], ids[larger]


def _pair_codes(store: Store, pairing: Pairing, failed: Collection[str]) -> NDArray[np.int64]:
    """Return a number for each pair, sorted: 8 bytes, where a tuple and its place in a set take 150."""
    ids = pairing.by_id
    place_of = {bytes.fromhex(content): place for place, content in enumerate(ids)}
    codes = [np.empty(0, np.int64)]
    for own, content in enumerate(ids):
        if content in failed:
            continue
        listed = read_input(store, pairing.key(content)).arrays[PARTNERS_ARRAY]
        others = np.array([place_of[bytes(row)] for row in listed], np.int64)
        codes.append(np.minimum(own, others) * len(ids) + np.maximum(own, others))
    return np.unique(np.concatenate(codes))
