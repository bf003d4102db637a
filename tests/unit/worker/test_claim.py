"""What was seen at the head of a list is claimed by the very bytes that were seen."""

from dataclasses import replace
from typing import Any

import pytest

from governor.model import Estimate
from tasks.estimate_forms import EstimateForms
from tests.unit.worker.builders import a_head, a_kind
from worker.claim import Head


def seen(raw: bytes) -> Head:
    """Build a head as it is when these bytes were read."""
    return a_head(estimate_text=raw.decode(errors="surrogateescape"))


@pytest.mark.parametrize("raw", [b"", b"lots", b"\xff\xfe", "\u00e9".encode(), b"\xed\xa0\x80"])
def test_an_estimate_goes_back_byte_by_byte(raw: bytes) -> None:
    """A claim compares it: a head that were changed on the way could never be claimed."""
    assert seen(raw).estimate_bytes == raw


@pytest.mark.parametrize("raw", [b"\xff", b"[" * 20_000], ids=["no UTF-8", "nested"])
def test_an_estimate_that_is_none_is_none(raw: bytes) -> None:
    """The head is refused; the error ends nothing."""
    assert seen(raw).estimate(a_kind()) is None


OLD = Estimate(memory_fixed_bytes=7)


@pytest.mark.parametrize(
    ("forms", "sent", "admitted"),
    [
        (EstimateForms(old=(OLD,)), OLD, a_kind().estimate),
        (EstimateForms(old=(OLD,)), a_kind().estimate, a_kind().estimate),
        (EstimateForms(), OLD, None),
        (None, OLD, OLD),
    ],
    ids=["an old form", "the current form", "no form", "a kind that accepts any"],
)
def test_a_head_is_admitted_with_what_its_estimate_stands_for(
    forms: EstimateForms | None, sent: Estimate, admitted: Estimate | None
) -> None:
    """The text that a claim compares stays as it was written."""
    head = a_head(estimate_text=sent.to_header())

    assert head.estimate(a_kind(forms=forms)) == admitted
    assert head.estimate_bytes == sent.to_header().encode()


@pytest.mark.parametrize(
    ("mark", "is_admitted"), [("ok", False), ("solo", False), ("moved", True), ("moved_solo", True)]
)
def test_only_what_a_node_has_moved_may_be_larger_than_its_kinds_form(
    mark: str, *, is_admitted: bool
) -> None:
    """A sender's near miss stays one, however often its nodes have died."""
    larger = replace(a_kind().estimate, memory_per_item_bytes=2001)
    head = a_head(estimate_text=larger.to_header(), mark=mark)

    assert (head.estimate(a_kind(forms=EstimateForms())) == larger) is is_admitted


@pytest.mark.parametrize(
    ("changes", "runs_alone"),
    [
        ({}, False),
        ({"mark": "moved"}, False),
        ({"mark": "solo"}, True),
        ({"mark": "moved_solo"}, True),
        ({"is_large": True}, True),
    ],
)
def test_a_suspect_and_a_large_entry_run_alone(changes: dict[str, Any], runs_alone: bool) -> None:  # noqa: FBT001 - a table
    """What waits behind them is not like them."""
    assert a_head(**changes).runs_alone is runs_alone
