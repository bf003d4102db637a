"""A head that waits for memory is moved out of the way of others, and where others overtake it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.model import Decision, DecisionReason, Verdict
from tests.unit.worker.builders import a_head
from worker.claim import Head
from worker.misfits import Misfits
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
    waited_ns: int,
    head: Head | None = None,
    decision: Decision = SHORT,
    *,
    is_overtaken: bool = False,
) -> list[tuple[int, bool, int]]:
    """Let a head have waited for so long; return (bytes, only if it blocks, ms waited) of what is moved."""
    monkeypatch.setattr("worker.misfits.time", SimpleNamespace(monotonic_ns=lambda: NOW_NS))
    queues = FakeQueues()
    misfits = Misfits(cast("Any", None), cast("Any", None))
    misfits.on_wait(
        cast("QueueView", queues),
        head or a_head(),
        decision,
        NOW_NS - waited_ns,
        is_overtaken=is_overtaken,
    )
    return queues.moved


def test_a_head_that_waits_for_memory_for_a_second_is_moved_where_it_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before, and what it waits for else does not end sooner elsewhere."""
    assert moved(monkeypatch, SECOND_NS) == []
    assert moved(monkeypatch, SECOND_NS + 1) == [(7, True, 1000)]
    assert moved(monkeypatch, SECOND_NS + 1, decision=BUSY) == []
    assert moved(monkeypatch, SECOND_NS + 1, a_head(is_large=True)) == []


def test_a_head_that_is_overtaken_for_thirty_seconds_is_moved_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It blocks nobody; but only a large entry is drained for, and this one has waited long enough."""
    assert moved(monkeypatch, 30 * SECOND_NS - 1, is_overtaken=True) == [(7, True, 29_999)]
    assert moved(monkeypatch, 30 * SECOND_NS, is_overtaken=True) == [(7, False, 30_000)]
    assert moved(monkeypatch, 30 * SECOND_NS, is_overtaken=False) == [(7, True, 30_000)]
