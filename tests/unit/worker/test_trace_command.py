"""Nodes tell their decisions on request: newest first, of one kind, and no more than a reply should hold."""

from typing import Any

import pytest

from governor.governor import Governor
from tests.unit.governor.builders import a_governor, a_snapshot, an_estimate
from worker import trace_command
from worker.trace_command import MOST_TOLD, ask_nodes, decisions, told_decisions


def a_busy_governor(*kinds: str) -> Governor:
    """Return a governor that has decided for each of these kinds."""
    governor = a_governor()
    for kind in kinds:
        governor.decide(a_snapshot(), an_estimate(), kind)
    return governor


class FakeNode:
    """A node called attic."""

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self.settings = type("Settings", (), {"name": "attic"})


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what Celery hands to a remote command of that node."""
    node = FakeNode(a_busy_governor("a", "b"))
    monkeypatch.setattr(trace_command, "node_of", lambda _app: node)
    return type("State", (), {"app": None})


def test_the_newest_decisions_are_told_first_and_never_too_many() -> None:
    """However many are asked for."""
    trace = a_busy_governor(*(f"kind {number}" for number in range(MOST_TOLD + 1))).trace()
    told = told_decisions(trace, 0, most=1000)

    assert len(told) == MOST_TOLD
    assert [one["kind"] for one in told_decisions(trace, 0, kind="kind 3")] == ["kind 3"]
    assert told_decisions(trace, 0, most=-1) == []


def test_the_asked_node_answers_and_the_others_do_at_once_too(state: Any) -> None:
    """So whoever asks need not wait for the time to be over."""
    ours, others = decisions(state, node="attic"), decisions(state, node="cellar")

    assert (ours["node"], {one["kind"] for one in ours["decisions"]}) == ("attic", {"a", "b"})
    assert others == {"node": "attic", "decisions": []}


def test_where_no_node_lives_nobody_is_asked() -> None:
    """Not even the queue."""
    assert ask_nodes("redis://127.0.0.1:1/0", alive=0, timeout_seconds=9) == []
