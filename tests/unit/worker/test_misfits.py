"""A head that waits for memory is moved out of the way of others, and where others overtake it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from governor.model import Decision, DecisionReason, Estimate, Verdict
from tasks.errors import Failure
from tests.unit.governor.builders import (
    GIB,
    LOOK_EVERY_NS,
    Machine,
    a_dedicated_gpu,
    a_governor,
    a_policy,
    a_profile,
)
from tests.unit.worker.builders import KIND, a_claimed, a_head, a_kind
from worker.claim import Head, Wish
from worker.drain import DRAIN_AFTER_NS
from worker.misfits import Misfits
from worker.overtaking import Waiting
from worker.queue_view import QueueView, Turn

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


class Blocked:
    """The only node of a run: 10 of 14 GiB are free for jobs, 4 GiB belong to a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waiting: list[Head]) -> None:
        self.waiting = waiting
        self.failures: list[Failure] = []
        self.readings: dict[str, Any] = {"available_bytes": 12 * GIB}
        self._machine = Machine()
        governor = a_governor(self._machine, a_profile(gpu=a_dedicated_gpu()), a_policy(gpu_slots=1))
        monkeypatch.setattr("worker.misfits.time", SimpleNamespace(monotonic_ns=lambda: self._machine.now_ns))
        self._node = SimpleNamespace(
            governor=governor,
            kinds={KIND: a_kind()},
            charged=lambda _kind, estimate: estimate,
            snapshot=lambda: self._machine.look(**self.readings),
            free_memory_bytes=lambda: governor.availability().available.memory_bytes,
            memory_option_for=lambda _decision: None,
        )
        reception = SimpleNamespace(refuse=lambda _message, _kind, failure: self.failures.append(failure))
        self._misfits = Misfits(cast("Any", self._node), cast("Any", reception))

    def look(self, _most_bytes: Any) -> None:
        """Know all there is already."""

    def heads(self) -> list[Head]:
        """Return what waits."""
        return self.waiting

    def turn(self, wishes: list[Wish], _most_bytes: Any) -> Turn:
        """Claim, and leave nothing."""
        self.waiting = [head for head in self.waiting if head not in [wish.head for wish in wishes]]
        return Turn(claimed=[[a_claimed()] for _ in wishes])

    def causes(self, *seconds: float, is_idle: bool = True) -> list[str]:
        """Let so many seconds pass before each sweep, and return why something was failed by then."""
        for passed in seconds:
            self._machine.now_ns += round(passed * SECOND_NS) - LOOK_EVERY_NS
            self._node.governor.decide(self._node.snapshot(), Estimate(), KIND)
            self._misfits.fail_blocked(cast("QueueView", self), is_idle=is_idle)
        return [failure.cause for failure in self.failures]


def waits_for(**amounts: int) -> Head:
    """Build a lone head that needs so much."""
    return a_head(estimate_text=Estimate(**amounts).to_header())


def test_a_lone_head_that_has_not_fitted_for_30_s_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks nobody, so nothing sets it aside; but no other node will come for it."""
    node = Blocked(monkeypatch, [waits_for(memory_fixed_bytes=11 * GIB)])
    before = node.causes(1, 29.9)

    assert before == []
    told = "needs 11.0 GiB, 10.0 GiB free of 10.0 GiB for 30 s, with no job running: "
    assert [cause.startswith(told) for cause in node.causes(0.1)] == [True]


def test_gpu_memory_that_others_hold_fails_a_lone_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """As RAM does; what fits it exactly, or cannot be read, fails nothing."""
    head = waits_for(gpu_memory_fixed_bytes=2 * GIB, gpu_slots=1)
    failed = []
    for free_bytes in (GIB, 2 * GIB, None):
        node = Blocked(monkeypatch, [head])
        node.readings["gpu_memory_available_bytes"] = free_bytes
        failed.append(len(node.causes(1, 30)))

    assert failed == [1, 0, 0]


def test_what_waits_for_something_else_than_memory_is_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy for a minute fails no photo, set aside or not."""
    small = waits_for(memory_fixed_bytes=GIB)
    large = waits_for(memory_fixed_bytes=11 * GIB)
    node = Blocked(monkeypatch, [small, large])
    node.readings["cpu_psi_percent"] = 90
    while_busy = node.causes(1, 30, 30)
    node.readings["cpu_psi_percent"] = 0

    assert while_busy == []
    assert ["11.0 GiB" in cause for cause in node.causes(1)] == [True]


def test_the_30_s_begin_anew_when_something_runs_or_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs may be in its way; and memory that comes and goes is no reason to give up."""
    node = Blocked(monkeypatch, [waits_for(memory_fixed_bytes=11 * GIB)])
    node.causes(1, 20)
    node.causes(5, is_idle=False)
    node.causes(5, 20)
    node.readings["available_bytes"] = 14 * GIB
    node.causes(5)
    node.readings["available_bytes"] = 12 * GIB

    assert node.causes(5, 29) == []
    assert len(node.causes(1)) == 1
