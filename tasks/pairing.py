"""Decides which strategies a project's images are paired by, and all that follows from their list alone.

What images look like and where they were taken is asked in :mod:`tasks.pairs`,
the kind; which pairs there are in the end is read in :mod:`tasks.proposals`.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from tasks.feature_sets import features_key
from tasks.index_segments import INDEX_VERSION
from tasks.parameters import FeatureParameters, PairParameters, PairStrategy
from tasks.store import ArtefactKey, Json, Project, ProjectImage, artefact_key, canonical_json

PAIRS_KIND = "candidate_pair.generate"
PAIRS_VERSION = 2
FEATURES_STAGE = "features"
INDEX_STAGE = "index"

MAX_EXHAUSTIVE_IMAGES = 100
"""`auto` pairs up to so many images exhaustively."""
_SHARE_OF_ONE_SIDED = 0.75
"""Pairs by proposals, where one side may be the only one to propose: between a half of these and all."""


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """How the images of a project are paired: a pure function of the images and parameters.

    Each image proposes partners. `exhaustive` and `sequential` are mutual:
    there the image with the smaller id proposes. With `retrieval` and
    `spatial` one may propose the other and not be proposed by it.
    """

    images: tuple[ProjectImage, ...]
    """Sorted by name; the order that `sequential` follows."""
    parameters: PairParameters
    features: FeatureParameters
    unindexed: frozenset[str] = frozenset()
    """Images that failed to enter the index: `retrieval` leaves them out."""

    @cached_property
    def strategies(self) -> frozenset[PairStrategy]:
        """What the images are really paired by: `auto` resolved, and what is redundant left out."""
        strategies = self.parameters.strategies
        if "auto" in strategies:
            few = len(self.images) <= MAX_EXHAUSTIVE_IMAGES
            return frozenset(("exhaustive",)) if few else frozenset(("retrieval", "spatial"))
        return frozenset(("exhaustive",)) if "exhaustive" in strategies else strategies

    @property
    def uses_index(self) -> bool:
        """Tell whether the visual index is asked."""
        return "retrieval" in self.strategies

    @property
    def uses_positions(self) -> bool:
        """Tell whether GPS positions are asked."""
        return "spatial" in self.strategies

    @property
    def is_mutual(self) -> bool:
        """Tell whether every pair is proposed by its smaller image."""
        return not (self.uses_index or self.uses_positions)

    def key(self, content: str) -> ArtefactKey:
        """Return the name of the pairs that an image proposes."""
        return artefact_key(PAIRS_KIND, PAIRS_VERSION, self.parameters, (content, self._manifest_sha256))

    def partners_by_name(self, content: str) -> list[str]:
        """Return the ids that an image proposes by `exhaustive` and `sequential`: larger ones, sorted."""
        position = self._positions[content]
        others = {self.images[other].content for other in self._positions_paired_with(position)}
        return sorted(other for other in others if other > content)

    def most_partners(self, content: str) -> int:
        """Return how many partners an image proposes at most."""
        return min(len(self.partners_by_name(content)) + self._most_partners_asked_for, len(self.images) - 1)

    @property
    def most_partners_of_any(self) -> int:
        """Return a bound on how many partners any image proposes."""
        by_name = len(self.images) if "exhaustive" in self.strategies else 0
        by_name += 2 * len(self._distances) if "sequential" in self.strategies else 0
        return max(0, min(by_name + self._most_partners_asked_for, len(self.images) - 1))

    @property
    def usual_partners(self) -> int:
        """Return how many pairs an image adds on average, about, rounded up.

        A mutual pair is half of either image's; of the others a part has both sides propose it.
        """
        most = self.most_partners_of_any
        usual = most / 2 if self.is_mutual else most * _SHARE_OF_ONE_SIDED
        return math.ceil(min(usual, max(len(self.images) - 1, 0) / 2))

    @property
    def _most_partners_asked_for(self) -> int:
        """Return how many partners the index and the positions name at most."""
        alike = self.parameters.top_k if self.uses_index else 0
        return alike + (self.parameters.neighbours if self.uses_positions else 0)

    def __contains__(self, content: str) -> bool:
        """Tell whether an image takes part."""
        return content in self._positions

    @cached_property
    def by_id(self) -> tuple[str, ...]:
        """The ids of all images, sorted: the order of GPS positions, and of ties."""
        return tuple(sorted(image.content for image in self.images))

    @cached_property
    def indexed(self) -> dict[str, str]:
        """The feature sets that the index is asked about: digest of each by image id, sorted by id."""
        return {
            content: features_key(content, self.features).digest
            for content in self.by_id
            if content not in self.unindexed
        }

    def _positions_paired_with(self, position: int) -> Iterator[int]:
        if "exhaustive" in self.strategies:
            yield from range(len(self.images))
        if "sequential" in self.strategies:
            for distance in self._distances:
                both = (position - distance, position + distance)
                yield from (place for place in both if 0 <= place < len(self.images))

    @cached_property
    def _distances(self) -> tuple[int, ...]:
        """How many images apart the images of a sequential pair are.

        All of 1..window, then window * 2, 4, 8, ... to the length of the
        sequence: few pairs, but an old place that is seen again is met.
        """
        window, count = self.parameters.window, len(self.images)
        doubled = takewhile(lambda distance: distance < count, (window << step for step in range(1, 64)))
        near = range(1, min(window, count - 1) + 1)
        return (*near, *doubled) if self.parameters.loop_steps else tuple(near)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {image.content: position for position, image in enumerate(self.images)}

    @cached_property
    def _manifest_sha256(self) -> str:
        contents: list[Json] = [image.content for image in self.images]
        manifest: Json = contents
        if self.uses_index:
            manifest = [contents, list(self.indexed.values()), INDEX_VERSION]
        return hashlib.sha256(canonical_json(manifest).encode()).hexdigest()


def images_for_pairing(project: Project) -> tuple[ProjectImage, ...]:
    """Return the project's images that have features, sorted by name."""
    failed = project.failed_items(FEATURES_STAGE)
    return tuple(image for image in project.images() if image.content not in failed)


def pairing_of(project: Project) -> Pairing:
    """Return how the images of a project are paired as it stands now."""
    parameters = project.parameters
    return Pairing(
        images=images_for_pairing(project),
        parameters=parameters.pairs,
        features=parameters.features,
        unindexed=frozenset(project.failed_items(INDEX_STAGE)),
    )


def pairs_key(project: Project, content: str) -> ArtefactKey:
    """Return the name of the pairs that one image proposes; for many images ask one :class:`Pairing`."""
    return pairing_of(project).key(content)
