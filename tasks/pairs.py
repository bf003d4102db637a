"""Holds the kind ``candidate_pair.generate``: which images are matched with which.

How a pair's matching job looks is in :mod:`tasks.pair_jobs`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

import numpy as np

from governor.model import Estimate, Grant
from tasks.estimate_forms import EstimateForms
from tasks.inputs import read_input
from tasks.kind import Done, Job, Kind, Outcome, Payload
from tasks.old_estimates import OLD_ESTIMATES
from tasks.pair_jobs import MATCH_STAGE, VERIFY_STAGE, Content, match_job, pair_item, project_verification_key
from tasks.parameters import PairParameters
from tasks.store import ArtefactKey, Project, ProjectImage, Store, artefact_key, canonical_json

PAIRS_KIND = "candidate_pair.generate"
PAIRS_VERSION = 1
PAIRS_STAGE = "pairs"
FEATURES_STAGE = "features"

_CONTENT_BYTES = 32


class PairsPayload(Payload):
    """Generate the pairs that one image of a project owns."""

    project: str
    image: Content


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Which images of a project are paired: a pure function of the images and parameters.

    A pair belongs to the image with the smaller id (content hash), whatever
    the strategy; so every pair comes from one source, once.
    """

    images: tuple[ProjectImage, ...]
    """Sorted by name; the order that `sequential` follows."""
    parameters: PairParameters

    def key(self, content: str) -> ArtefactKey:
        """Return the name of the pairs that an image owns."""
        return artefact_key(PAIRS_KIND, PAIRS_VERSION, self.parameters, (content, self._manifest_sha256))

    def partners(self, content: str) -> list[str]:
        """Return the ids of the right images of the pairs that an image owns, sorted."""
        position = self._positions[content]
        others = {self.images[other].content for other in self._positions_paired_with(position)}
        return sorted(other for other in others if other > content)

    def __contains__(self, content: str) -> bool:
        """Tell whether an image takes part."""
        return content in self._positions

    def _positions_paired_with(self, position: int) -> Iterator[int]:
        if self.parameters.strategy != "sequential":
            yield from range(len(self.images))
            return
        for distance in self._distances:
            yield from (p for p in (position - distance, position + distance) if 0 <= p < len(self.images))

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
        contents = [image.content for image in self.images]
        return hashlib.sha256(canonical_json(contents).encode()).hexdigest()


def images_for_pairing(project: Project) -> tuple[ProjectImage, ...]:
    """Return the project's images that have features, sorted by name."""
    failed = project.failed_items(FEATURES_STAGE)
    return tuple(image for image in project.images() if image.content not in failed)


def pairing_of(project: Project) -> Pairing:
    """Return how the images of a project are paired as it stands now."""
    return Pairing(images=images_for_pairing(project), parameters=project.parameters.pairs)


def pairs_key(project: Project, content: str) -> ArtefactKey:
    """Return the name of the pairs of one image; for many images ask one :class:`Pairing`."""
    return pairing_of(project).key(content)


def candidate_pairs(store: Store, project: Project) -> list[tuple[str, str]]:
    """Return all generated pairs (left id, right id) of a project, sorted.

    Those of an image whose generation has failed for good are left out.

    Raises:
        MissingArtefactError: the pairs of an image are not (any longer) there.
    """
    pairing = pairing_of(project)
    failed = project.failed_items(PAIRS_STAGE)
    return sorted(
        (image.content, bytes(row).hex())
        for image in pairing.images
        if image.content not in failed
        for row in read_input(store, pairing.key(image.content)).arrays["right"]
    )


def pairs_job(project: Project, content: str) -> Job:
    """Return the job that generates one image's pairs."""
    return Job(
        kind=PAIRS_KIND,
        payload=PairsPayload(project=project.id, image=content).model_dump(mode="json"),
        project=project.id,
        stage=PAIRS_STAGE,
        item=content,
    )


def run_pairs(payloads: Sequence[PairsPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish each image's pairs as ``right``: uint8 (P, 32), the partners' content hashes, sorted.

    Follow-ups are the matching jobs of pairs that are neither verified nor
    failed. The known strategies only count positions, so one source at a time
    is made on this thread, whatever the grant.
    """
    _ = grant
    states: dict[str, _ProjectState] = {}
    for payload in payloads:
        if payload.project not in states:
            states[payload.project] = _ProjectState.read(store.project(payload.project))
        yield _generate(payload.image, states[payload.project], store)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectState:
    """What a batch reads of a project, once."""

    project: Project
    pairing: Pairing
    failed_pairs: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def read(cls, project: Project) -> "_ProjectState":
        failed = project.failed_items(MATCH_STAGE) | project.failed_items(VERIFY_STAGE)
        return cls(project=project, pairing=pairing_of(project), failed_pairs=frozenset(failed))


def _generate(content: str, state: _ProjectState, store: Store) -> Done:
    if content not in state.pairing:
        return Done(recorded_items=0)
    key = state.pairing.key(content)
    partners = state.pairing.partners(content)
    is_new = not store.has(key)
    if is_new:
        hashes = np.frombuffer(bytes.fromhex("".join(partners)), np.uint8)
        store.publish(key, {"right": hashes.reshape(-1, _CONTENT_BYTES)}, {"left": content})
    jobs = tuple(
        match_job(state.project, content, right)
        for right in partners
        if _is_open(content, right, state, store)
    )
    return Done(recorded_items=len(partners) if is_new else 0, follow_ups=jobs)


def _is_open(left: str, right: str, state: _ProjectState, store: Store) -> bool:
    if pair_item(left, right) in state.failed_pairs:
        return False
    return not store.has(project_verification_key(state.project, left, right))


KINDS = (
    Kind(
        name=PAIRS_KIND,
        version=PAIRS_VERSION,
        stage=PAIRS_STAGE,
        # The owner's 256 KiB hold the pairs; the image list and the jobs decide (measured).
        estimate=Estimate(
            memory_fixed_bytes=16 << 20,
            memory_per_item_bytes=64 << 10,
            max_batch=64,
            cpu_threads=12,
            io_slots=1,
        ),
        forms=EstimateForms(old=OLD_ESTIMATES[PAIRS_KIND]),
        payload=PairsPayload,
        run=run_pairs,
    ),
)
