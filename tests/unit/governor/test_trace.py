"""The trace tells decisions with their readings; equal answers for a kind in a row are one stretch."""

import json

from governor.model import Decision, DecisionReason, Verdict
from governor.trace import ENTRIES, TraceEntry, new_trace, stretches
from tests.unit.governor.builders import GIB, a_snapshot

SECOND_NS = 10**9
WAIT, FULL = DecisionReason.INSUFFICIENT_MEMORY, DecisionReason.IN_FULL


def an_entry(second: int, reason: DecisionReason = WAIT, kind: str = "noop") -> TraceEntry:
    """Build a decision of that second, made on a reading 0.1 s old."""
    verdict = Verdict.START if reason is FULL else Verdict.WAIT
    return TraceEntry(
        at_ns=second * SECOND_NS,
        kind=kind,
        decision=Decision(verdict=verdict, reason=reason, detail=f"at {second}"),
        snapshot=a_snapshot(captured_at_ns=second * SECOND_NS - SECOND_NS // 10),
        reservation_id=None,
    )


def test_equal_answers_in_a_row_are_told_as_one() -> None:
    """With the numbers of the last one, and since when; the newest stretch comes first."""
    told = stretches([an_entry(1), an_entry(2), an_entry(3, FULL), an_entry(4)])

    assert [(one.times, one.last.decision.detail) for one in told] == [(1, "at 4"), (1, "at 3"), (2, "at 2")]
    assert told[-1].first_at_ns == SECOND_NS


def test_kinds_that_take_turns_are_stretches_of_their_own() -> None:
    """Two heads that wait do not fill what is told."""
    told = stretches([an_entry(1), an_entry(2, kind="b"), an_entry(3), an_entry(4, kind="b")])

    assert [(one.last.kind, one.times) for one in told] == [("b", 2), ("noop", 2)]


def test_a_decision_is_told_with_ages_and_readings() -> None:
    """As JSON, with units in the names."""
    (stretch,) = stretches([an_entry(1), an_entry(3)])
    told = json.loads(json.dumps(stretch.to_dict(5 * SECOND_NS)))

    assert (told["age_seconds"], told["since_seconds"], told["times"]) == (2.0, 4.0, 2)
    assert told["sentence"] == "WAIT INSUFFICIENT_MEMORY: at 3"
    assert told["readings"]["age_seconds"] == 0.1
    assert told["readings"]["memory_available_bytes"] == 10 * GIB
    assert "captured_at_ns" not in told["readings"]


def test_the_trace_forgets_the_oldest() -> None:
    """It keeps 256."""
    trace = new_trace()
    trace.extend(an_entry(second) for second in range(ENTRIES + 1))

    assert (len(trace), trace[0].at_ns) == (ENTRIES, SECOND_NS)
