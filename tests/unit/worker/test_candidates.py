"""What waits is tried in the order of urgency, size, stage and patience."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.builders import a_head
from worker.candidates import WaitingTimes, in_order
from worker.claim import Head

STAGE_OF = {"early": 0, "late": 5, "noop": 2}


def ordered(*heads: Head, seen_ns: dict[str, int] | None = None) -> list[Head]:
    """Order heads that were first seen at these times (0 where not said)."""
    times = WaitingTimes()
    seen_ns = seen_ns or {}
    arrived: list[Head] = []
    for head in sorted(heads, key=lambda head: seen_ns.get(head.source, 0)):
        arrived.append(head)
        times.note(arrived, seen_ns.get(head.source, 0))
    return in_order(heads, STAGE_OF, times)


def test_a_more_urgent_class_goes_first() -> None:
    """Protected before high before best effort, whatever the stage."""
    best_effort = a_head(kind="late", source="a", priority=6)
    high = a_head(kind="early", source="b", priority=3)
    protected = a_head(kind="early", source="c", priority=0)

    assert ordered(best_effort, high, protected) == [protected, high, best_effort]


def test_what_was_set_aside_goes_before_what_fits_anywhere() -> None:
    """It has waited for a node like this; but it keeps its own class."""
    protected = a_head(kind="late", source="a", priority=0)
    small = a_head(kind="late", source="c", priority=6)
    large = a_head(kind="early", source="b", is_large=True, priority=6)

    assert ordered(protected, small, large) == [protected, large, small]


def test_a_later_stage_goes_before_an_earlier_one() -> None:
    """Finish before starting: what is begun holds space."""
    early, late = a_head(kind="early", source="a"), a_head(kind="late", source="b")

    assert ordered(early, late) == [late, early]


def test_of_equals_the_one_that_has_waited_longest_goes_first() -> None:
    """Patience decides last."""
    first, second = a_head(source="b"), a_head(source="a")

    assert ordered(second, first, seen_ns={"b": 1, "a": 2}) == [first, second]


def test_a_kind_of_no_known_stage_is_tried_as_the_earliest() -> None:
    """A user's own kind does not crash the node."""
    own, late = a_head(kind="own", source="a"), a_head(kind="late", source="b")

    assert ordered(own, late) == [late, own]


def test_a_head_that_comes_again_has_waited_since_then_only() -> None:
    """While it was gone it was not waiting."""
    times, head = WaitingTimes(), a_head()
    times.note([head], 1)
    times.note([], 2)
    times.note([head], 3)
    times.note([head], 4)

    assert times.since_ns(head) == 3


def test_another_estimate_in_the_same_list_is_another_head() -> None:
    """The patience of one is not inherited by the next."""
    times = WaitingTimes()
    first, second = a_head(estimate_text="a"), a_head(estimate_text="b")
    times.note([first], 1)
    times.note([second], 9)

    assert times.since_ns(second) == 9


@given(
    st.permutations([a_head(source=f"{p}{k}", priority=p, kind=k) for p in (0, 3) for k in ("early", "late")])
)
def test_the_order_does_not_depend_on_how_heads_arrive(heads: list[Head]) -> None:
    """The same queues, the same choice."""
    assert [head.source for head in ordered(*heads)] == ["0late", "0early", "3late", "3early"]
