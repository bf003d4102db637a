"""Decides in which order a node tries what waits for it. Pure; does not cover whether it may start."""

from collections.abc import Mapping, Sequence

from worker.claim import Head


class WaitingTimes:
    """Since when each head has been waiting here, and for what."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[str, ...], int] = {}

    def note(self, heads: Sequence[Head], now_ns: int) -> None:
        """Remember new heads and forget those that are gone."""
        present = {_identity(head) for head in heads}
        self._since_ns = {identity: self._since_ns.get(identity, now_ns) for identity in present}

    def since_ns(self, head: Head) -> int | None:
        """Return when this head was first seen; None where it was not noted."""
        return self._since_ns.get(_identity(head))


def _identity(head: Head) -> tuple[str, ...]:
    return (head.source, head.estimate_text, head.mark, head.identity)


def _since_or_last(head: Head, times: WaitingTimes) -> float:
    since_ns = times.since_ns(head)
    return float("inf") if since_ns is None else since_ns


def in_order(heads: Sequence[Head], stage_of: Mapping[str, int], times: WaitingTimes) -> list[Head]:
    """Return heads in the order to try them.

    Most urgent class first; then what was set aside as large (it has waited
    for a node like this); then the latest pipeline stage, to finish before
    starting; then the longest waiting.
    """
    return sorted(
        heads,
        key=lambda head: (
            head.priority,
            not head.is_large,
            -stage_of.get(head.kind, 0),
            _since_or_last(head, times),
            head.source,
        ),
    )
