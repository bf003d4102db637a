"""What no child ever ran fails in words a user can act on."""

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from governor.model import UINT64_MAX, Decision, DecisionReason, Estimate, Verdict
from tasks.errors import Failure, Reason
from tasks.estimate_forms import EstimateForms, difference
from tests.unit.worker.builders import a_head, a_kind
from worker import refusals
from worker.deaths import Ending, LastEnd

TOO_LARGE = Decision(
    verdict=Verdict.REJECT, reason=DecisionReason.ESTIMATE_TOO_LARGE, detail="needs 9 GiB, has 2"
)


@pytest.mark.parametrize(
    ("failure", "reason", "told"),
    [
        (refusals.malformed(a_head(mark="bad"), a_kind()), Reason.UNDECODABLE_MESSAGE, "not a task message"),
        (refusals.malformed(a_head(estimate_text="lots"), a_kind()), Reason.INVALID_ESTIMATE, "lots"),
        (refusals.undecodable("a", "no headers"), Reason.UNDECODABLE_MESSAGE, "cannot be read: no headers"),
        (refusals.positional_arguments("a"), Reason.INVALID_ARGUMENTS, "positional arguments"),
        (refusals.invalid_task("a"), Reason.INVALID_ARGUMENTS, "`expires`"),
        (refusals.too_large(TOO_LARGE, "1920MiB"), Reason.NEEDS_BIGGER_NODE, "needs 9 GiB, has 2"),
        (
            refusals.never_free(TOO_LARGE, None),
            Reason.NEEDS_BIGGER_NODE,
            "has 2 for 30 s, with no job running",
        ),
        (refusals.unknown_task("a", "no.such"), Reason.UNKNOWN_TASK, "no.such is not known here"),
        (refusals.unknown_task("a", "b", "c"), Reason.UNKNOWN_TASK, "b does not belong into the queue c"),
        (refusals.too_many_lost_nodes("a", 10, None), Reason.WORKER_LOST, "10 nodes were lost"),
        (refusals.too_many_lost_nodes("a", 10, "pc1"), Reason.WORKER_LOST, "start jobs; the last: pc1"),
        (refusals.cancelled("a"), Reason.CANCELLED, "revoked, or expired"),
    ],
)
def test_a_refusal_has_a_reason_a_cause_and_a_cure(failure: Failure, reason: Reason, told: str) -> None:
    """The cause names what was wrong."""
    assert failure.reason is reason
    assert told in failure.cause
    assert failure.cure


@pytest.mark.parametrize(
    ("decision", "is_of_gpu"),
    [
        (replace(TOO_LARGE, reason=DecisionReason.NO_GPU), True),
        (replace(TOO_LARGE, needed_gpu_memory_bytes=2, available_gpu_memory_bytes=1), True),
        (replace(TOO_LARGE, needed_gpu_memory_bytes=1, available_gpu_memory_bytes=1), False),
        (
            replace(TOO_LARGE, needed_gpu_memory_bytes=2, needed_memory_bytes=2, available_memory_bytes=1),
            False,
        ),
    ],
)
def test_who_lacks_a_gpu_is_not_told_to_raise_the_memory(decision: Decision, is_of_gpu: bool) -> None:  # noqa: FBT001 - a table
    """Where memory is short as well, that comes first."""
    cure = refusals.too_large(decision, "1920MiB").cure

    assert ("GPU" in cure, "--memory 1920MiB" in cure) == (is_of_gpu, not is_of_gpu)


@pytest.mark.parametrize(
    "refuse",
    [
        lambda text: refusals.malformed(a_head(estimate_text=text), a_kind(forms=EstimateForms())),
        lambda text: refusals.undecodable("a", text),
        lambda text: refusals.unknown_task("a", text),
    ],
    ids=["estimate", "message", "task"],
)
@pytest.mark.parametrize("text", ["x" * 60_000, "\udcff" * 60_000], ids=["long", "no UTF-8"])
def test_a_text_from_outside_is_quoted_in_part_and_can_be_stored(
    refuse: Callable[[str], Failure], text: str
) -> None:
    """Whoever sends nonsense neither fills the list of dead jobs nor breaks the store."""
    cause = refuse(text).cause

    assert len(cause.encode()) < 1500
    assert text[:9].encode(errors="backslashreplace") in cause.encode()


def test_an_estimate_of_no_form_is_refused_with_its_difference_and_what_to_send() -> None:
    """Whoever sent it sees the one number that is wrong, and the text that is right."""
    kind = a_kind(forms=EstimateForms())
    sent = replace(kind.estimate, memory_fixed_bytes=2001).to_header()
    failure = refusals.malformed(a_head(estimate_text=sent), kind)

    assert failure.reason is Reason.INVALID_ESTIMATE
    assert failure.cause.endswith(
        f"of no form that {kind.name} accepts: memory_fixed_bytes is 2001, not 2000"
    )
    assert failure.cure.endswith(kind.estimate.to_header())


def test_the_longest_difference_of_valid_numbers_is_told_whole() -> None:
    """Nine numbers of 64 bits, each beside those of two forms, are not cut."""
    most = Estimate(**{field.name: UINT64_MAX for field in fields(Estimate)})
    forms = EstimateForms(floors=(replace(most, gpu_slots=UINT64_MAX - 1),))
    kind = a_kind(estimate=most, forms=forms)
    sent = Estimate(**{field.name: UINT64_MAX - 2 for field in fields(Estimate)})
    told = refusals.malformed(a_head(estimate_text=sent.to_header()), kind).cause

    assert told.endswith(difference(sent, most, forms))


def test_a_refusal_takes_the_name_of_its_item() -> None:
    """The head is known before the message is."""
    failure = refusals.too_large(TOO_LARGE, "1920MiB")

    named = refusals.named(failure, "IMG_1.jpg")
    assert named.name == "IMG_1.jpg"
    assert named.cause == failure.cause


@pytest.mark.parametrize("ending", list(Ending))
def test_a_job_too_large_names_the_memory_kill_that_told_so(ending: Ending) -> None:
    """The numbers alone would not tell why the job asks for so much; other ends are not to blame."""
    end = LastEnd(ending=ending, node="pc1", reserved_bytes=1 << 20, peak_bytes=2 << 30)
    failure = refusals.after_memory_kill(refusals.too_large(TOO_LARGE, None), end)

    names_it = failure.cause.endswith("on node pc1, with 1.00 MiB reserved and at least 2.00 GiB in use")
    assert failure.cause.startswith("needs 9 GiB, has 2")
    assert names_it is ending.is_for_memory


def test_only_a_job_too_large_has_a_memory_kill_as_its_root() -> None:
    """A revoked job is a revoked job."""
    end = LastEnd(ending=Ending.OUT_OF_MEMORY, node="pc1", reserved_bytes=1)

    assert refusals.after_memory_kill(refusals.cancelled("a"), end) == refusals.cancelled("a")
    assert refusals.after_memory_kill(refusals.too_large(TOO_LARGE, None), None).cause == TOO_LARGE.detail


@pytest.mark.parametrize("failure", [refusals.cancelled("a"), refusals.too_many_lost_nodes("a", 10, None)])
def test_a_job_without_a_project_is_not_sent_to_one(failure: Failure) -> None:
    """Whoever fails it does not look for whom it is."""
    assert "job" in failure.cure
