"""Monitors show what a node has reserved: words first, numbers below."""

from tests.unit.governor.builders import a_governor, a_snapshot, an_estimate
from worker.node_report import report

MIB = 1 << 20


def test_an_idle_node_waits_for_nothing() -> None:
    """Nothing is reserved, nothing was decided."""
    told = report(a_governor(), "", {})

    assert (told["pressure"], told["batches"], told["waits for"], told["last decision"]) == (
        "GREEN",
        "0 running",
        "nothing",
        "none yet",
    )
    assert told["memory"].startswith("0 bytes of ")
    assert told["governor"] == {"decisions": []}


def test_what_is_reserved_is_told_in_words() -> None:
    """With the last decision, and why the next must wait."""
    governor = a_governor()
    estimate = an_estimate(memory_fixed_bytes=100 * MIB, memory_per_item_bytes=0, cpu_threads=1)
    governor.reserve(a_snapshot(), estimate, "noop", waiting_items=1)
    told = report(governor, "no room", {"name": "attic"})

    assert told["memory"].startswith("100 MiB of ")
    assert told["threads"].startswith("1 of ")
    assert (told["batches"], told["waits for"]) == ("1 running", "no room")
    assert told["last decision"].startswith("START")
    assert told["governor"] == {"name": "attic", "decisions": [told["last decision"]]}


def test_only_the_last_eight_decisions_are_told() -> None:
    """The page stays short, and says what holds now: the first one has left it."""
    governor = a_governor()
    for _ in range(9):
        governor.reserve(a_snapshot(), an_estimate(), "noop", waiting_items=1)
    told = report(governor, "", {})["governor"]["decisions"]

    assert governor.trace()[0].sentence().startswith(("START", "REDUCE"))
    assert [sentence.partition(" ")[0] for sentence in told] == ["WAIT"] * 8


def test_the_words_come_before_the_numbers() -> None:
    """A page shows them in this order."""
    assert list(report(a_governor(), "", {}))[-1] == "governor"
