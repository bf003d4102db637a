"""Decides which estimate a message runs under, and the larger one it gets when its memory ran out. Pure.

Does not cover which forms a kind accepts (:mod:`tasks.estimate_forms`).
"""

from collections.abc import Iterable
from dataclasses import replace

from governor.model import UINT64_MAX, Estimate
from tasks.kind import Kind


def admitted_estimate(kind: Kind, text: str, *, is_moved: bool) -> Estimate | None:
    """Return the estimate that a message is admitted with; None where its kind does not accept it.

    ``text`` is what the message carries, empty = nothing. ``is_moved``: not
    its sender wrote it, but a node, over the message's first brace.
    """
    if not text:
        return kind.estimate
    sent = parsed_estimate(text)
    return None if sent is None else kind.estimate_for(sent, is_moved=is_moved)


def parsed_estimate(text: str) -> Estimate | None:
    """Return the estimate as it is written; None where the text is none."""
    try:
        return Estimate.from_header(text)
    except ValueError:
        return None


def with_more_memory(estimate: Estimate, peaks_bytes: Iterable[int]) -> Estimate:
    """Return the estimate of an item whose memory ran out: 1.5 times as much, or the largest peak known.

    Counted for the smallest batch (an item that is tried again runs alone);
    what is added is added to the need of an item, the fixed part stays.
    """
    had_bytes = estimate.memory_bytes(estimate.min_batch)
    wanted_bytes = max(-(-had_bytes * 3 // 2), had_bytes + 1, *peaks_bytes)
    per_item_bytes = -(-(wanted_bytes - estimate.memory_fixed_bytes) // estimate.min_batch)
    return replace(estimate, memory_per_item_bytes=min(per_item_bytes, UINT64_MAX))


def share_of_peak(estimate: Estimate, peak_bytes: int, items: int) -> int:
    """Return what one of the items that were worked on at a time had of a batch's peak."""
    above_fixed_bytes = max(0, peak_bytes - estimate.memory_fixed_bytes)
    return estimate.memory_fixed_bytes + -(-above_fixed_bytes // items)
