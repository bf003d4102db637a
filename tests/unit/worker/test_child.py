"""A child tells each outcome at once, and the last together with its report."""

import json
from typing import Any

from tests.unit.worker.builders import GRANT, KIND
from worker.child import Answer
from worker.frames import BatchReport, BatchRequest

REPORT = BatchReport(peak_bytes=1, recorded_items=2, retire=False)


def sent_by(payloads: int, outcomes: int) -> list[list[dict[str, Any]]]:
    """Return the frames of each write of a batch that has so many payloads and outcomes."""
    writes: list[bytes] = []
    request = BatchRequest(
        batch_id="1", kind=KIND, payloads=({},) * payloads, places=(None,) * payloads, grant=GRANT
    )
    answer = Answer(writes.append, request)
    for index in range(outcomes):
        answer.outcome(index, {"action": "done"})
    answer.report(REPORT)
    return [[json.loads(line) for line in write.splitlines()] for write in writes]


def test_the_last_outcome_goes_with_the_report() -> None:
    """One write wakes the main process once; the others do not wait for it."""
    writes = sent_by(payloads=3, outcomes=3)

    assert [[frame.get("index", "report") for frame in write] for write in writes] == [
        [0],
        [1],
        [2, "report"],
    ]


def test_a_batch_that_ends_early_holds_nothing_back() -> None:
    """What has no outcome was not reached; the others were told."""
    writes = sent_by(payloads=3, outcomes=2)

    assert [[frame.get("index", "report") for frame in write] for write in writes] == [[0], [1], ["report"]]
