"""A report of a dead job says what it died of, where, and with how much memory."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tasks.errors import Failure, Reason
from tests.unit.worker.builders import an_item
from worker.dead_jobs import Attempt, DeadEnding, DeadJob, ending_of
from worker.deaths import Ending, LastEnd
from worker.frames import Place

FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")
RAN = Attempt(node="pc1", reserved_bytes=4096, peak_bytes=77)
KILLED = LastEnd(ending=Ending.KILLED, node="pc2", reserved_bytes=10, peak_bytes=5)
OUT_OF_MEMORY = replace(KILLED, ending=Ending.OUT_OF_MEMORY)


def dead(reason: Reason, last_end: LastEnd | None = None, **options: Any) -> DeadJob:
    """Return the report of an item that fails for a reason now."""
    item = replace(an_item("a", attempts=2), last_end=last_end)
    return DeadJob.of(item, "noop", replace(FAILURE, reason=reason), **options)


def test_a_report_is_read_as_it_was_written() -> None:
    """Also what the script that keeps it has put in front."""
    job = dead(Reason.WORKER_LOST, KILLED, ran=RAN)
    text = '{"serial":7,"at_ms":1796000000000,' + job.to_text()[1:]

    assert DeadJob.from_text(text.encode()) == replace(job, serial=7, at_ms=1_796_000_000_000)


def test_a_report_has_all_that_was_agreed() -> None:
    """Programs sort by these fields."""
    told = json.loads(dead(Reason.UNREADABLE, ran=RAN).to_text())

    assert {"kind", "job_id", "name", "reason", "cause", "cure", "attempts", "lost"} <= set(told)
    assert (told["ending"], told["node"], told["reserved_bytes"], told["peak_bytes"]) == (
        "error",
        "pc1",
        4096,
        77,
    )
    assert (told["project"], told["stage"], told["item"]) == ("p", "match", "a")


def test_of_a_job_that_never_ran_no_figures_are_told() -> None:
    """They are there, and null."""
    told = dead(Reason.UNKNOWN_TASK).to_dict()

    assert [told[name] for name in ("node", "reserved_bytes", "peak_bytes")] == [None, None, None]


@pytest.mark.parametrize(
    ("reason", "last_end", "ending"),
    [
        (Reason.UNREADABLE, None, DeadEnding.ERROR),
        (Reason.UNREADABLE, KILLED, DeadEnding.ERROR),
        (Reason.STORE_UNAVAILABLE, OUT_OF_MEMORY, DeadEnding.ERROR),
        (Reason.CANCELLED, KILLED, DeadEnding.CANCELLED),
        (Reason.TIME_LIMIT, KILLED, DeadEnding.TIME_LIMIT),
        (Reason.WORKER_LOST, KILLED, DeadEnding.KILLED),
        (Reason.WORKER_LOST, OUT_OF_MEMORY, DeadEnding.OUT_OF_MEMORY),
        (Reason.NEEDS_BIGGER_NODE, None, DeadEnding.ERROR),
        (Reason.NEEDS_BIGGER_NODE, KILLED, DeadEnding.ERROR),
        (Reason.NEEDS_BIGGER_NODE, OUT_OF_MEMORY, DeadEnding.OUT_OF_MEMORY),
    ],
)
def test_the_ending_is_that_of_the_last_attempt_where_that_is_the_cause(
    reason: Reason, last_end: LastEnd | None, ending: DeadEnding
) -> None:
    """An earlier kill is not to blame for what fails by itself now."""
    assert dead(reason, last_end).ending is ending


@pytest.mark.parametrize(
    ("end", "ending"),
    [
        (Ending.OUT_OF_MEMORY, "out_of_memory"),
        (Ending.OUT_OF_MEMORY_SUSPECTED, "out_of_memory_suspected"),
        (Ending.ALLOCATION_FAILED, "out_of_memory"),
        (Ending.KILLED, "killed"),
        (Ending.EXITED, "error"),
        (Ending.NO_RESULT, "error"),
        (Ending.SPAWNER_LOST, "lost_node"),
        (Ending.TIME_LIMIT, "time_limit"),
    ],
)
def test_each_end_of_an_attempt_is_one_of_a_job(end: Ending, ending: str) -> None:
    """As written in the list of dead jobs."""
    assert ending_of(end) == ending


def test_no_end_of_an_attempt_is_left_out() -> None:
    """A new one must be told as one of a job."""
    assert {ending_of(end) for end in Ending} <= set(DeadEnding)


def test_a_job_too_large_since_a_kill_is_told_with_the_node_and_figures_of_that() -> None:
    """It never ran again."""
    assert dead(Reason.NEEDS_BIGGER_NODE, OUT_OF_MEMORY).attempt == Attempt(
        node="pc2", reserved_bytes=10, peak_bytes=5
    )


def test_lost_nodes_are_told_whatever_was_before() -> None:
    """By the last of them: the node on which it was killed earlier is another matter."""
    item = replace(an_item("a"), last_end=KILLED, lost=10, lost_on="pc9")
    job = DeadJob.of(item, "noop", replace(FAILURE, reason=Reason.WORKER_LOST), ending=DeadEnding.LOST_NODE)

    assert (job.ending, job.lost, job.attempt) == (DeadEnding.LOST_NODE, 10, Attempt(node="pc9"))


def test_a_report_of_a_former_version_is_read() -> None:
    """What it lacks is unknown."""
    old = {"kind": "noop", "job_id": "7", "attempts": 3, **FAILURE.to_dict()}
    job = DeadJob.from_text(json.dumps(old | {"project": "p", "stage": "s", "item": "i"}).encode())

    assert (job.job_id, job.attempts, job.lost, job.serial, job.at_ms) == ("7", 3, 0, None, None)
    assert job.place == Place(project="p", stage="s", item="i")


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b'{"ending":"bored"}', b'{"attempts":[]}', b"\xff"])
def test_what_is_no_report_is_a_value_error(text: bytes) -> None:
    """The list is open to whoever has the password."""
    with pytest.raises(ValueError):  # noqa: PT011 - the cause differs
        DeadJob.from_text(text)
