"""Tests of the values that the governor, the kinds and the worker share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.model import UINT64_MAX, Decision, DecisionReason, Estimate, Verdict
from tests.unit.governor.builders import an_estimate

amounts = st.integers(0, UINT64_MAX)


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({"min_batch": 1}, True),
        ({"min_batch": 0}, False),
        ({"min_batch": 8, "max_batch": 8}, True),
        ({"min_batch": 9, "max_batch": 8}, False),
        ({"cpu_threads": 1}, True),
        ({"cpu_threads": 0}, False),
        ({"memory_fixed_bytes": UINT64_MAX}, True),
        ({"memory_fixed_bytes": UINT64_MAX + 1}, False),
        ({"memory_fixed_bytes": 0}, True),
        ({"memory_fixed_bytes": -1}, False),
        ({"gpu_memory_fixed_bytes": 1, "gpu_slots": 1}, True),
        ({"gpu_memory_fixed_bytes": 1, "gpu_slots": 0}, False),
        ({"gpu_memory_per_item_bytes": 1, "gpu_slots": 0}, False),
    ],
)
def test_an_estimate_is_valid_up_to_each_limit(changes: dict[str, int], is_valid: bool) -> None:  # noqa: FBT001
    """Each rule has a case that just keeps it and one that just breaks it."""
    assert an_estimate(**changes).is_valid() is is_valid


@given(fixed=amounts, per_item=amounts, threads=st.integers(1, 64))
def test_an_estimate_survives_its_header(fixed: int, per_item: int, threads: int) -> None:
    """What is written into a message header is what is read from it."""
    estimate = Estimate(memory_fixed_bytes=fixed, memory_per_item_bytes=per_item, cpu_threads=threads)

    assert Estimate.from_header(estimate.to_header()) == estimate


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "{",
        '{"bytes": 1}',
        '{"max_batch": 1.0}',
        '{"max_batch": true}',
        '{"max_batch": ' + "9" * 5000 + "}",
        "[" * 20_000,
    ],
    ids=lambda header: header[:20],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    """Text that is no estimate raises, whatever is wrong with it."""
    with pytest.raises(ValueError, match=r"."):
        Estimate.from_header(header)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_start_and_reduce_admit(verdict: Verdict) -> None:
    """The two verdicts that come with a reservation say so."""
    decision = Decision(verdict=verdict, reason=DecisionReason.IN_FULL, detail="")

    assert decision.is_admitted == (verdict.value in {"START", "REDUCE"})


def test_a_sentence_names_verdict_reason_and_numbers() -> None:
    """The sentence is what `tiepoint node` prints."""
    decision = Decision(
        verdict=Verdict.WAIT, reason=DecisionReason.CPU_PSI, detail="CPU pressure 36 % >= 20 %"
    )

    assert decision.sentence() == "WAIT CPU_PSI: CPU pressure 36 % >= 20 %"
