"""A head that waits for memory is moved out of the way of others, and where others overtake it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.model import Decision, DecisionReason, Verdict
from tests.unit.worker.builders import a_head
from worker.claim import Head
from worker.drain import DRAIN_AFTER_NS
from worker.misfits import Misfits
from worker.overtaking import Waiting
from worker.queue_view import QueueView

NOW_NS = 10**12
SECOND_NS = 10**9
SHORT = Decision(
    verdict=Verdict.WAIT, reason=DecisionReason.INSUFFICIENT_MEMORY, detail="", needed_memory_bytes=7
)
BUSY = Decision(verdict=Verdict.WAIT, reason=DecisionReason.SLOTS_BUSY, detail="")


class FakeQueues:
    """Remembers what was set aside, and how."""

    def __init__(self) -> None:
        self.moved: list[tuple[int, bool, int]] = []

    def set_aside(
        self, _head: Head, charged_bytes: int, *, only_if_it_blocks: bool, waited_ms: int = 0
    ) -> bool:
        """Remember."""
        self.moved.append((charged_bytes, only_if_it_blocks, waited_ms))
        return True


def moved(
    monkeypatch: pytest.MonkeyPatch,
    tried_ns: int,
    seen_ns: int | None = None,
    *,
    head: Head | None = None,
    decision: Decision = SHORT,
    is_overtaken: bool = False,
) -> list[tuple[int, bool, int]]:
    """Let a head have waited for so long; return (bytes, only if it blocks, ms waited) of what is moved."""
    monkeypatch.setattr("worker.misfits.time", SimpleNamespace(monotonic_ns=lambda: NOW_NS))
    queues = FakeQueues()
    waiting = Waiting(
        tried_since_ns=NOW_NS - tried_ns,
        seen_since_ns=NOW_NS - (tried_ns if seen_ns is None else seen_ns),
        is_overtaken=is_overtaken,
    )
    Misfits(cast("Any", None), cast("Any", None)).on_wait(
        cast("QueueView", queues), head or a_head(), decision, waiting
    )
    return queues.moved


def test_a_head_that_waits_for_memory_for_a_second_is_moved_where_it_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before; and what waits for something else, or is moved already, stays."""
    assert moved(monkeypatch, SECOND_NS) == []
    assert moved(monkeypatch, SECOND_NS + 1) == [(7, True, 1000)]
    assert moved(monkeypatch, SECOND_NS + 1, decision=BUSY) == []
    assert moved(monkeypatch, SECOND_NS + 1, head=a_head(is_large=True)) == []


def test_the_second_counts_from_when_it_could_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy node says nothing of memory; but all of its time counts towards the drain."""
    assert moved(monkeypatch, 0, 20 * SECOND_NS) == []
    assert moved(monkeypatch, 2 * SECOND_NS, 20 * SECOND_NS) == [(7, True, 20_000)]


def test_a_head_that_is_starved_is_moved_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks nobody; but only a large entry is drained for, and this one has waited long enough."""
    assert moved(monkeypatch, 0, DRAIN_AFTER_NS - 1, is_overtaken=True) == []
    assert moved(monkeypatch, 0, DRAIN_AFTER_NS, is_overtaken=True) == [(7, False, 28_000)]
    assert moved(monkeypatch, 0, DRAIN_AFTER_NS, is_overtaken=False) == []
