"""Holds the kind ``matcher.run``: the matches of pairs of images, in bounded windows.

How two descriptor sets are compared is in :mod:`tasks.matching_kernel`.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from governor.model import Estimate, Grant
from tasks.errors import MissingArtefactError
from tasks.estimate_forms import EstimateForms
from tasks.inputs import read_features
from tasks.kind import Done, Job, Kind, NotReady, Outcome
from tasks.matching_kernel import match_descriptors
from tasks.old_estimates import OLD_ESTIMATES
from tasks.pair_jobs import (
    MATCH_KIND,
    MATCH_STAGE,
    MATCH_VERSION,
    MatchPayload,
    matches_key,
    project_verification_key,
    verification_job,
)
from tasks.participants import run_shared, single_threaded_libraries
from tasks.store import ArtefactKey, Store

PAIRS_PER_THREAD = 2
MAX_WINDOW_PAIRS = 8

Descriptors = NDArray[np.uint8]
Matches = NDArray[np.uint32]
Compare = Callable[[Descriptors, Descriptors, MatchPayload], Matches]


def compare_on_cpu(left: Descriptors, right: Descriptors, payload: MatchPayload) -> Matches:
    """Compare two descriptor sets as a payload says."""
    return match_descriptors(
        left,
        right,
        extractor=payload.features.extractor,
        ratio=payload.matching.ratio,
        cross_check=payload.matching.cross_check,
    )


def run_matching(payloads: Sequence[MatchPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Match every pair and publish ``matches``: uint32 (M, 2), feature indices, sorted.

    Pairs are computed in windows of at most two per granted thread and eight;
    this thread publishes a window's matches after all others have ended.
    """
    window_pairs = _window_pairs(grant)
    for start in range(0, len(payloads), window_pairs):
        window = payloads[start : start + window_pairs]
        with single_threaded_libraries():
            results = run_shared(lambda payload: match_pair(payload, store), window, grant.cpu_threads)
        for payload, matches in zip(window, results, strict=True):
            yield publish_matches(payload, matches, store)


def _window_pairs(grant: Grant) -> int:
    return min(PAIRS_PER_THREAD * grant.cpu_threads, MAX_WINDOW_PAIRS)


def match_pair(
    payload: MatchPayload, store: Store, compare: Compare = compare_on_cpu
) -> Matches | NotReady | None:
    """Return a pair's matches; None where they are published already."""
    if store.has(_key(payload)):
        return None
    try:
        left, right = (
            read_features(store, content, payload.features).descriptors
            for content in (payload.left, payload.right)
        )
    except MissingArtefactError as error:
        return NotReady(cause=str(error))
    return compare(left, right, payload)


def publish_matches(payload: MatchPayload, matches: Matches | NotReady | None, store: Store) -> Outcome:
    """Publish what :func:`match_pair` has returned, and return the item's outcome."""
    if isinstance(matches, NotReady):
        return matches
    if matches is not None:
        store.publish(_key(payload), {"matches": matches}, {"left": payload.left, "right": payload.right})
    return Done(recorded_items=0 if matches is None else 1, follow_ups=_follow_ups(payload, store))


def _follow_ups(payload: MatchPayload, store: Store) -> tuple[Job, ...]:
    if payload.project is None:
        return ()
    project = store.project(payload.project)
    if store.has(project_verification_key(project, payload.left, payload.right)):
        return ()
    return (verification_job(project, payload.left, payload.right),)


def _key(payload: MatchPayload) -> ArtefactKey:
    return matches_key(payload.left, payload.right, payload.features, payload.matching)


def _warm_up() -> None:
    # The BLAS makes its buffers at the first product.
    few = np.zeros((2, 128), np.uint8)
    match_descriptors(few, few, extractor="sift")


KINDS = (
    Kind(
        name=MATCH_KIND,
        version=MATCH_VERSION,
        stage=MATCH_STAGE,
        estimate=Estimate(memory_per_item_bytes=10 << 20, max_batch=8, cpu_threads=8, io_slots=1),
        forms=EstimateForms(old=OLD_ESTIMATES[MATCH_KIND]),
        payload=MatchPayload,
        run=run_matching,
        powers_of_two=True,
        window=_window_pairs,
        warm_up=_warm_up,
    ),
)
