"""What no child ever ran fails in words a user can act on."""

import json

import pytest

from governor.model import Decision, DecisionReason, Verdict
from tasks.errors import Failure, Reason
from tests.unit.worker.builders import a_head
from worker import refusals

TOO_LARGE = Decision(
    verdict=Verdict.REJECT, reason=DecisionReason.ESTIMATE_TOO_LARGE, detail="needs 9 GiB, has 2"
)


@pytest.mark.parametrize(
    ("failure", "reason", "told"),
    [
        (refusals.malformed(a_head(mark="bad")), Reason.UNDECODABLE_MESSAGE, "not a task message"),
        (refusals.malformed(a_head(estimate_text="lots")), Reason.INVALID_ESTIMATE, "lots"),
        (refusals.too_large(TOO_LARGE), Reason.NEEDS_BIGGER_NODE, "needs 9 GiB, has 2"),
        (refusals.unknown_task("a", "no.such"), Reason.UNKNOWN_TASK, "no.such is not known here"),
        (refusals.unknown_task("a", "b", "c"), Reason.UNKNOWN_TASK, "b does not belong into the queue c"),
        (refusals.too_many_lost_nodes("a", 10), Reason.WORKER_LOST, "10 nodes were lost"),
        (refusals.cancelled("a"), Reason.CANCELLED, "revoked, or expired"),
    ],
)
def test_a_refusal_has_a_reason_a_cause_and_a_cure(failure: Failure, reason: Reason, told: str) -> None:
    """The cause names what was wrong."""
    assert failure.reason is reason
    assert told in failure.cause
    assert failure.cure


def test_a_long_estimate_is_quoted_in_part() -> None:
    """Whoever sends nonsense does not fill the list of dead jobs."""
    assert len(refusals.malformed(a_head(estimate_text="x" * 60_000)).cause) < 300


def test_a_refusal_takes_the_name_of_its_item() -> None:
    """The head is known before the message is."""
    failure = refusals.too_large(TOO_LARGE)

    named = refusals.named(failure, "IMG_1.jpg")
    assert named.name == "IMG_1.jpg"
    assert named.cause == failure.cause


def test_a_message_without_identity_is_reported_as_json() -> None:
    """It is an entry of the list of dead jobs like any other."""
    report = json.loads(refusals.undecodable_report("noop", ValueError('no "headers"')))

    assert report == {"kind": "noop", "reason": "undecodable_message", "cause": 'no "headers"'}
