"""Holds the kind ``candidate_pair.generate``: each image proposes the images it is matched with.

By what is decided in :mod:`tasks.pairing`; how a pair's matching job looks in :mod:`tasks.pair_jobs`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from governor.model import Estimate, Grant
from tasks.errors import MissingArtefactError
from tasks.estimate_forms import EstimateForms
from tasks.inputs import read_input
from tasks.kind import Done, Job, Kind, Needs, NotReady, Outcome, Payload
from tasks.old_estimates import OLD_ESTIMATES
from tasks.pair_jobs import MATCH_STAGE, VERIFY_STAGE, Content, match_job, pair_item, project_verification_key
from tasks.pairing import PAIRS_KIND, PAIRS_VERSION, Pairing, images_for_pairing, pairing_of, pairs_key
from tasks.participants import single_threaded_libraries
from tasks.proposals import CONTENT_BYTES, PAIRS_STAGE, PARTNERS_ARRAY, candidate_pairs
from tasks.retrieval import VisualIndex
from tasks.spatial import Positions, neighbours, read_positions
from tasks.store import Project, Store

__all__ = [
    "Pairing",
    "PairsPayload",
    "candidate_pairs",
    "images_for_pairing",
    "pairing_of",
    "pairs_estimate",
    "pairs_job",
    "pairs_key",
    "run_pairs",
]

SOURCES_PER_THREAD = 2
MAX_WINDOW_SOURCES = 24

_BASE_BYTES, _INDEX_BASE_BYTES = 12 << 20, 32 << 20
_BYTES_PER_IMAGE = 2 << 10


class PairsPayload(Payload):
    """Generate the pairs that one image of a project proposes."""

    project: str
    image: Content


def pairs_estimate(pairing: Pairing) -> Estimate:
    """Return what generating pairs among so many images needs: the default, or more.

    ``base + 2 KiB * images`` is fixed; the base is 12 MiB, or 32 MiB with the
    index: the keys of 24 sources (8 MiB), four segments being read (10 MiB),
    the hits that are kept (7 MiB). Measured: docs/retrieval.md.
    """
    base_bytes = _INDEX_BASE_BYTES if pairing.uses_index else _BASE_BYTES
    fixed_bytes = base_bytes + _BYTES_PER_IMAGE * len(pairing.images)
    default = KINDS[0].estimate
    return replace(default, memory_fixed_bytes=max(fixed_bytes, default.memory_fixed_bytes))


def pairs_job(project: Project, content: str, estimate: Estimate | None = None) -> Job:
    """Return the job that generates one image's pairs; ``estimate`` travels where it is not the default."""
    return Job(
        kind=PAIRS_KIND,
        payload=PairsPayload(project=project.id, image=content).model_dump(mode="json"),
        project=project.id,
        stage=PAIRS_STAGE,
        item=content,
        estimate=estimate if estimate != KINDS[0].estimate else None,
    )


def run_pairs(payloads: Sequence[PairsPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Publish each image's proposals as ``partners``: uint8 (P, 32), content hashes, sorted.

    The index is asked for a window of sources at a time: at most two per
    granted thread and 24 in all; this thread publishes them, in order.
    Follow-ups are the matching jobs of those pairs that certainly belong to
    the source (see :mod:`tasks.proposals`) and are neither verified nor failed.
    """
    projects = {payload.project for payload in payloads}
    sources = {project: _Sources.of(store.project(project), store) for project in projects}
    window_size = _window_sources(grant)
    for start in range(0, len(payloads), window_size):
        window = payloads[start : start + window_size]
        try:
            with single_threaded_libraries():
                found = _propose_window(window, sources, grant)
        except MissingArtefactError as error:
            yield from (NotReady(cause=str(error)) for _ in window)
            continue
        for payload in window:
            proposed = found[payload]
            if isinstance(proposed, Needs):
                yield proposed
            else:
                yield _publish(payload.image, proposed, sources[payload.project])


def _window_sources(grant: Grant) -> int:
    return min(SOURCES_PER_THREAD * grant.cpu_threads, MAX_WINDOW_SOURCES)


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """What a batch reads of a project, once."""

    project: Project
    store: Store
    pairing: Pairing
    failed_pairs: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, project: Project, store: Store) -> "_Sources":
        failed = project.failed_items(MATCH_STAGE) | project.failed_items(VERIFY_STAGE)
        return cls(project=project, store=store, pairing=pairing_of(project), failed_pairs=frozenset(failed))

    @cached_property
    def index(self) -> VisualIndex:
        """The visual index of the project's images."""
        return VisualIndex.of(self.store, tuple(self.pairing.indexed.values()))

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        """The image of each set of the index."""
        return tuple(self.pairing.indexed)

    @cached_property
    def positions(self) -> Positions:
        """Where the images were taken."""
        return read_positions(self.store, self.pairing.by_id)

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The place of each image in the order of ids."""
        return {content: place for place, content in enumerate(self.pairing.by_id)}

    def published(self, content: str) -> set[str] | None:
        """Return what an image has proposed before; None where it has not."""
        key = self.pairing.key(content)
        if not self.store.has(key):
            return None
        return {bytes(row).hex() for row in read_input(self.store, key).arrays[PARTNERS_ARRAY]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposed:
    """What an image proposes; ``is_new`` unless that was published before."""

    partners: set[str]
    is_new: bool = True


def _propose_window(
    window: Sequence[PairsPayload], sources: Mapping[str, _Sources], grant: Grant
) -> dict[PairsPayload, _Proposed | Needs | None]:
    """Return what the images of a window propose; None for one that takes no part."""
    found: dict[PairsPayload, _Proposed | Needs | None] = {}
    for project in sorted({payload.project for payload in window}):
        own = [payload for payload in window if payload.project == project]
        estimate = pairs_estimate(sources[project].pairing)
        if estimate.memory_bytes(len(own)) > grant.memory_bytes:
            # Sent by somebody who did not know how large the project is.
            found.update(dict.fromkeys(own, Needs(estimate=estimate)))
            continue
        proposed = _propose([payload.image for payload in own], sources[project], grant.cpu_threads)
        found.update({payload: proposed.get(payload.image) for payload in own})
    return found


def _propose(contents: Sequence[str], of: _Sources, threads: int) -> dict[str, _Proposed]:
    """Return what those of some images propose that take part."""
    proposed: dict[str, _Proposed] = {}
    for content in contents:
        if content in of.pairing:
            published = of.published(content)
            proposed[content] = (
                _Proposed(partners=set(of.pairing.partners_by_name(content)))
                if published is None
                else _Proposed(partners=published, is_new=False)
            )
    new = {content: found.partners for content, found in proposed.items() if found.is_new}
    if of.pairing.uses_index:
        _add_alike(new, of, threads)
    if of.pairing.uses_positions:
        _add_near(new, of)
    return proposed


def _add_alike(new: dict[str, set[str]], of: _Sources, threads: int) -> None:
    """Add the images that resemble each most."""
    sources = [content for content in new if content in of.pairing.indexed]
    if not sources:
        return
    places = [of.indexed.index(content) for content in sources]
    alike = of.index.neighbours(places, of.pairing.parameters.top_k, threads)
    for content, found in zip(sources, alike, strict=True):
        new[content].update(of.indexed[neighbour.position] for neighbour in found)


def _add_near(new: dict[str, set[str]], of: _Sources) -> None:
    """Add the images that were taken nearest to each."""
    parameters = of.pairing.parameters
    for content, partners in new.items():
        near = neighbours(
            of.positions,
            of.place_of[content],
            most=parameters.neighbours,
            max_distance_m=parameters.max_distance_m,
        )
        partners.update(of.pairing.by_id[place] for place in near)


def _publish(content: str, proposed: _Proposed | None, of: _Sources) -> Done:
    if proposed is None:
        return Done(recorded_items=0)
    partners = sorted(proposed.partners)
    if proposed.is_new:
        hashes = np.frombuffer(bytes.fromhex("".join(partners)), np.uint8)
        arrays = {PARTNERS_ARRAY: hashes.reshape(-1, CONTENT_BYTES)}
        of.store.publish(of.pairing.key(content), arrays, {"image": content})
    # A partner with a smaller id may propose the pair itself; if it does not, the planner matches it.
    jobs = tuple(
        match_job(of.project, content, other)
        for other in partners
        if content < other and _is_open(content, other, of)
    )
    return Done(recorded_items=len(partners) if proposed.is_new else 0, follow_ups=jobs)


def _is_open(left: str, right: str, of: _Sources) -> bool:
    if pair_item(left, right) in of.failed_pairs:
        return False
    return not of.store.has(project_verification_key(of.project, left, right))


# The owner's 256 KiB hold the pairs; the image list and the jobs decide (measured).
_ESTIMATE = Estimate(
    memory_fixed_bytes=16 << 20, memory_per_item_bytes=64 << 10, max_batch=64, cpu_threads=12, io_slots=1
)

KINDS = (
    Kind(
        name=PAIRS_KIND,
        version=PAIRS_VERSION,
        stage=PAIRS_STAGE,
        estimate=_ESTIMATE,
        forms=EstimateForms(floors=(_ESTIMATE,), old=OLD_ESTIMATES[PAIRS_KIND]),
        payload=PairsPayload,
        run=run_pairs,
        window=_window_sources,
    ),
)
