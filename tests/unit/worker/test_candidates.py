"""What waits is tried in the order of urgency, size, turn, stage and patience."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.expand import EXPAND_KIND
from tests.unit.worker.builders import a_head
from worker import candidates
from worker.candidates import Turns, WaitingTimes, in_order
from worker.claim import Head
from worker.contracts import read_contract

STAGE_OF = {"early": 0, "late": 5, "noop": 2}


def ordered(*heads: Head, seen_ns: dict[str, int] | None = None, served: str = "") -> list[Head]:
    """Order heads that were first seen at these times (0 where not said), these projects being served."""
    turns = Turns()
    for project in served:
        turns.note(project)
    times = WaitingTimes()
    seen_ns = seen_ns or {}
    arrived: list[Head] = []
    for head in sorted(heads, key=lambda head: seen_ns.get(head.source, 0)):
        arrived.append(head)
        times.note(arrived, seen_ns.get(head.source, 0))
    return in_order(heads, STAGE_OF, times, turns)


def test_a_more_urgent_class_goes_first() -> None:
    """Protected before high before best effort, whatever the stage."""
    best_effort = a_head(kind="late", source="a", priority=6)
    high = a_head(kind="early", source="b", priority=3)
    protected = a_head(kind="early", source="c", priority=0)

    assert ordered(best_effort, high, protected) == [protected, high, best_effort]


def test_what_is_due_first_goes_first_within_its_class() -> None:
    """Without a deadline last, however long it has waited; a class is not overtaken for a deadline."""
    late = a_head(source="2", contract=read_contract({"deadline_ms": 100, "captured_at_ms": 2}))
    soon = a_head(source="1", contract=read_contract({"deadline_ms": 100, "captured_at_ms": 1}))
    never, protected = a_head(source="a"), a_head(source="z", priority=0)

    assert ordered(never, late, soon, protected, seen_ns={"2": 5, "1": 9}) == [protected, soon, late, never]


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


def test_the_project_that_was_served_longest_ago_goes_first() -> None:
    """Whatever its stage: a project in its last stage does not hold up one in its first."""
    late = a_head(kind="late", source="a", project="p")
    early = a_head(kind="early", source="b", project="q")

    assert ordered(late, early, served="pq") == [late, early]
    assert ordered(late, early, served="qp") == [early, late]


def test_a_project_that_was_never_served_goes_first() -> None:
    """A new one starts at once."""
    old, new = a_head(kind="late", source="a", project="p"), a_head(kind="early", source="b", project="q")

    assert ordered(old, new, served="p") == [new, old]


def test_a_plan_goes_before_all_turns() -> None:
    """It is short, and what it plans keeps the others fed; a more urgent class goes before it."""
    work = a_head(kind="late", source="a", project="q")
    plan = a_head(kind=EXPAND_KIND, source="b", project="p")
    urgent = a_head(kind="early", source="c", project="p", priority=0)

    assert ordered(work, plan, urgent, served="qp") == [urgent, plan, work]


def test_within_a_project_the_latest_stage_goes_first() -> None:
    """Taking turns changes nothing for a project that is alone."""
    early, late = (a_head(kind=kind, source=kind, project="p") for kind in ("early", "late"))

    assert ordered(early, late, served="ppp") == [late, early]


def test_jobs_without_a_project_take_turns_as_one() -> None:
    """Bare jobs of stock clients neither starve nor crowd out projects."""
    bare, job = a_head(kind="late", source="a"), a_head(kind="early", source="b", project="p")
    turns = Turns()
    turns.note("")

    assert in_order([bare, job], STAGE_OF, WaitingTimes(), turns) == [job, bare]


def test_turns_remember_a_bounded_number_of_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one served longest ago is forgotten, and so is next."""
    monkeypatch.setattr(candidates, "_MOST_PROJECTS", 2)
    turns = Turns()
    for project in "abac":
        turns.note(project)

    assert [turns.last(project) for project in "abc"] == [3, 0, 4]
