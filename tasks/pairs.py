"""Holds the kind ``candidate_pair.generate``: each image proposes the images it is matched with.

By what is decided in :mod:`tasks.pairing`; how a pair's matching job looks in :mod:`tasks.pair_jobs`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

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
_BYTES_PER_FOLLOW_UP = 8 << 10


class PairsPayload(Payload):
    """Generate the pairs that one image of a project proposes."""

    project: str
    image: Content


def pairs_estimate(pairing: Pairing) -> Estimate:
    """Return what generating pairs among so many images needs: the default, or more.

    ``base + 2 KiB * images + 8 KiB * partners`` is fixed: the partners that
    one image can have, each of which leads to a matching job on its way to the
    queue. The base is 12 MiB, or 32 MiB with the index: the keys of 24 sources
    (8 MiB), four segments being read (10 MiB), the hits that are kept (7 MiB).
    Measured: docs/retrieval.md.
    """
    base_bytes = _INDEX_BASE_BYTES if pairing.uses_index else _BASE_BYTES
    fixed_bytes = base_bytes + _BYTES_PER_IMAGE * len(pairing.images)
    fixed_bytes += _BYTES_PER_FOLLOW_UP * pairing.most_partners_of_any
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
    window_size = _window_sources(grant)
    # One project in memory at a time: the estimate is that of one.
    for project, group in groupby(payloads, key=lambda payload: payload.project):
        of = _Sources.of(store.project(project), store)
        contents = [payload.image for payload in group]
        for start in range(0, len(contents), window_size):
            yield from _run_window(contents[start : start + window_size], of, grant)


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


def _run_window(contents: Sequence[str], of: _Sources, grant: Grant) -> Iterator[Outcome]:
    """Ask the index for a window of images, then propose one after the other."""
    estimate = pairs_estimate(of.pairing)
    if estimate.memory_bytes(len(contents)) > grant.memory_bytes:
        # Sent by somebody who did not know how large the project is.
        yield from (Needs(estimate=estimate) for _ in contents)
        return
    try:
        with single_threaded_libraries():
            alike = _alike(contents, of, grant.cpu_threads)
    except MissingArtefactError as error:
        yield from (NotReady(cause=str(error)) for _ in contents)
        return
    for content in contents:
        yield _outcome(content, alike.pop(content, None), of)


def _alike(contents: Sequence[str], of: _Sources, threads: int) -> dict[str, list[str]]:
    """Return for those images that have not proposed anything yet which ones resemble them most.

    Empty lists where the index is not asked.
    """
    new = [content for content in contents if content in of.pairing]
    new = [content for content in new if not of.store.has(of.pairing.key(content))]
    alike: dict[str, list[str]] = {content: [] for content in new}
    sources = [content for content in alike if of.pairing.uses_index and content in of.pairing.indexed]
    if not sources:
        return alike
    places = [of.indexed.index(content) for content in sources]
    found = of.index.neighbours(places, of.pairing.parameters.top_k, threads)
    for content, neighbours_found in zip(sources, found, strict=True):
        alike[content] = [of.indexed[neighbour.position] for neighbour in neighbours_found]
    return alike


def _near(content: str, of: _Sources) -> list[str]:
    """Return the images that were taken nearest to one."""
    parameters = of.pairing.parameters
    near = neighbours(
        of.positions,
        of.place_of[content],
        most=parameters.neighbours,
        max_distance_m=parameters.max_distance_m,
    )
    return [of.pairing.by_id[place] for place in near]


def _outcome(content: str, alike: Sequence[str] | None, of: _Sources) -> Outcome:
    """Publish what one image proposes; ``alike`` is None where it has done so before, or takes no part."""
    if content not in of.pairing:
        return Done(recorded_items=0)
    try:
        partners = _published(content, of) if alike is None else _proposed(content, alike, of)
    except MissingArtefactError as error:
        return NotReady(cause=str(error))
    # A partner with a smaller id may propose the pair itself; if it does not, the planner matches it.
    jobs = tuple(
        match_job(of.project, content, other)
        for other in partners
        if content < other and _is_open(content, other, of)
    )
    return Done(recorded_items=0 if alike is None else len(partners), follow_ups=jobs)


def _published(content: str, of: _Sources) -> list[str]:
    partners = read_input(of.store, of.pairing.key(content)).arrays[PARTNERS_ARRAY]
    return [bytes(row).hex() for row in partners]


def _proposed(content: str, alike: Sequence[str], of: _Sources) -> list[str]:
    """Publish the union of what the strategies propose; return it, sorted."""
    near = _near(content, of) if of.pairing.uses_positions else []
    partners = sorted({*of.pairing.partners_by_name(content), *alike, *near})
    hashes = np.frombuffer(bytes.fromhex("".join(partners)), np.uint8)
    arrays = {PARTNERS_ARRAY: hashes.reshape(-1, CONTENT_BYTES)}
    of.store.publish(of.pairing.key(content), arrays, {"image": content})
    return partners


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
