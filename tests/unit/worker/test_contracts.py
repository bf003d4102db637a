"""A contract is read from flat headers, or refused with the name of the one that is wrong."""

from typing import Any

import pytest

from governor.planning.contract import Contract, ServiceClass
from worker.contracts import LONGEST_MS, NOTHING_SAID, NS_PER_MS, SentContract, read_contract, to_headers

LIVE = {
    "class": "protected",
    "period_ms": 500,
    "deadline_ms": 750,
    "max_age_ms": 1000,
    "captured_at_ms": 1_800_000_000_000,
    "supersede_key": "camera1",
}


def test_a_message_that_says_nothing_is_best_effort() -> None:
    """As all were before."""
    assert read_contract({}) == NOTHING_SAID == SentContract(contract=Contract())


def test_all_headers_are_read() -> None:
    """Milliseconds become nanoseconds."""
    sent = read_contract(LIVE)

    assert sent.contract == Contract(
        service_class=ServiceClass.PROTECTED,
        period_ns=500 * NS_PER_MS,
        deadline_ns=750 * NS_PER_MS,
        max_age_ns=1000 * NS_PER_MS,
        supersede_key="camera1",
    )
    assert sent.captured_at_ms == 1_800_000_000_000


@pytest.mark.parametrize("headers", [LIVE, {"class": "high"}, {"class": "best_effort", "max_age_ms": 1}])
def test_what_is_read_can_be_sent_again(headers: dict[str, Any]) -> None:
    """What follows from a job keeps its contract."""
    assert to_headers(read_contract(headers)) == headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("class", "urgent"),
        ("class", 0),
        ("class", ["high"]),
        ("period_ms", 0),
        ("period_ms", -1),
        ("deadline_ms", 1.5),
        ("deadline_ms", "750"),
        ("max_age_ms", True),
        ("max_age_ms", LONGEST_MS + 1),
        ("captured_at_ms", -1),
        ("captured_at_ms", 2**53 + 1),
        ("supersede_key", ""),
        ("supersede_key", "x" * 129),
        ("supersede_key", 7),
    ],
)
def test_a_header_that_makes_no_sense_is_named(name: str, value: object) -> None:
    """Just beyond the limits, too."""
    with pytest.raises(ValueError, match=f"^{name} is "):
        read_contract({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("period_ms", 1), ("max_age_ms", LONGEST_MS), ("captured_at_ms", 0), ("supersede_key", "x" * 128)],
)
def test_a_header_at_its_limit_is_read(name: str, value: object) -> None:
    """Just within."""
    assert read_contract({name: value}) != NOTHING_SAID


def test_a_capture_in_the_future_counts_as_now() -> None:
    """Its sender's clock is ahead; it must not live longer for that."""
    sent = read_contract({"captured_at_ms": 5_000, "max_age_ms": 100})

    assert [sent.captured_ms(now_ms) for now_ms in (4_000, 6_000)] == [4_000, 5_000]


@pytest.mark.parametrize(
    ("now_ms", "takes_ms", "is_stale"), [(5_100, 0, False), (5_101, 0, True), (5_000, 101, True)]
)
def test_what_would_be_too_old_when_it_is_done_is_stale(now_ms: int, takes_ms: int, is_stale: bool) -> None:  # noqa: FBT001 - a parameter
    """Its age counts from its capture."""
    sent = read_contract({"captured_at_ms": 5_000, "max_age_ms": 100})

    assert sent.is_stale(now_ms, takes_ms * NS_PER_MS) is is_stale


def test_what_has_no_greatest_age_is_never_stale() -> None:
    """A missed deadline alone is no reason."""
    assert not read_contract({"captured_at_ms": 0, "deadline_ms": 1}).is_stale(10**12)
