"""Tiepoint comes through the shorter cases of the reliability bench, and the bench counts right."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bench.reliability import CASES
from tests.bench.reliability_body import END, START, note, work
from tests.bench.reliability_case import Case, Result
from tests.bench.reliability_claims import frozen_when_idle, joining_node, long_job
from tests.bench.reliability_deaths import killer, killer_in_a_batch, limit_with_sleepers, random_kills
from tests.bench.reliability_kinds import ONE
from tests.bench.reliability_log import RunLog, Tally, tally
from tests.bench.reliability_nodes import TIEPOINT
from tests.bench.reliability_outages import lost_events
from tests.bench.reliability_scene import Scene, scene

Play = Callable[[Scene], Result]
ENOUGH_SECONDS = 60.0


def case_of(letter: str) -> Case:
    """Return a case of the bench."""
    return next(case for case in CASES if case.letter == letter)


@contextmanager
def our_scene(folder: Path) -> Iterator[Scene]:
    """Set up a scene for workers of ours whose leases are short."""
    with scene(TIEPOINT, folder) as made:
        made.configure(ours={"lease_seconds": 1})
        made.patience_seconds = ENOUGH_SECONDS
        yield made


@pytest.mark.parametrize(
    ("letter", "play"),
    [
        ("a", partial(long_job, seconds=4, apart_seconds=0)),
        ("b", partial(frozen_when_idle, rounds=1)),
        ("c", partial(killer_in_a_batch, watched_seconds=ENOUGH_SECONDS)),
        ("d", partial(killer, watched_seconds=ENOUGH_SECONDS)),
        ("e", joining_node),
        ("g", partial(limit_with_sleepers, gone_within_seconds=ENOUGH_SECONDS)),
        ("j", partial(lost_events, jobs=100, right_within_seconds=ENOUGH_SECONDS)),
    ],
)
def test_a_short_case_ends_as_it_must(letter: str, play: Play, tmp_path: Path) -> None:
    """With leases of a second, so that a job of four would be sent again three times."""
    with our_scene(tmp_path) as made:
        result = play(made)

    assert case_of(letter).faults(result) == []


def test_random_kills_leave_nothing_undone_or_reserved(tmp_path: Path) -> None:
    """Two: a job killed three times is given up. How soon the next one starts is told by the bench."""
    with our_scene(tmp_path) as made:
        result = random_kills(made, kills=2)

    assert (result.tally.done, result.tally.lost, result.tally.doubled) == (result.tally.jobs, 0, 0)
    assert result.figures["still_reserved_bytes"] == 0


def test_each_job_is_counted_as_what_has_become_of_it(tmp_path: Path) -> None:
    """One done, one done twice, one given up, one that still waits, one that nobody knows."""
    log = RunLog(tmp_path / "runs")
    for job in (0, 1, 1, 2, 3):
        note(str(log.path), START, job, pid=1)
    for job in (0, 1, 1):
        note(str(log.path), END, job, pid=1)

    assert tally(log, 5, failed={2}, held={0, 3}) == Tally(
        jobs=5, starts=5, done=2, failed=1, waiting=1, lost=1, ended_twice=1, doubled=1
    )
    assert tally(log, 5, failed={2}, held={0, 3}, accepted=2).doubled == 0


def test_a_job_tells_of_its_start_and_its_end(tmp_path: Path) -> None:
    """And of the program that it has started, not waited for here."""
    log = RunLog(tmp_path / "runs")
    work(job=7, log=str(log.path))

    assert [(line.step, line.job) for line in log.lines()] == [(START, 7), (END, 7)]
    assert not log.is_any_running()


def test_a_run_that_has_not_ended_is_running_while_its_process_lives(tmp_path: Path) -> None:
    """A dead process runs nothing."""
    dead, alive = RunLog(tmp_path / "dead"), RunLog(tmp_path / "alive")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    note(str(dead.path), START, 0, ended.pid)
    note(str(alive.path), START, 0, os.getpid())

    assert (dead.is_any_running(), alive.is_any_running()) == (False, True)


def test_a_message_is_held_wherever_the_server_has_it(tmp_path: Path) -> None:
    """In a list, taken, or set aside; taken away it is lost."""
    with our_scene(tmp_path) as made:
        for _ in range(4):
            made.send()
        texts: list[Any] = [made.client.rpop(ONE) for _ in range(3)]
        made.client.hset("taken", "tag", texts[0])
        made.client.zadd("aside", {texts[1]: 1.0})

        assert made.held() == {0, 1, 3}
        assert made.tally().lost == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.letter)
def test_a_lost_job_is_a_fault_in_every_case(case: Case) -> None:
    """Whatever else is as it must be."""
    figures = {"of_two": {"a": 1, "b": 1}, "refused": 0, "results": 1, "unaccounted": 0}
    figures |= {"deaths": 3, "attempts": 3, "given_up": [], "cause": "SIGKILL", "ending": "killed"}
    figures |= {"most_starts_of_others": 1, "alive_in_the_end": 0}
    figures |= {"next_start_p95_s": 0.1, "next_start_max_s": 0.1, "still_reserved_bytes": 0}
    figures |= {"is_right": True, "events_say_done": 0}
    lost = Tally(jobs=1, starts=1, done=0, failed=0, waiting=0, lost=1, ended_twice=0, doubled=0)

    assert "no job is lost" in case.faults(Result(tally=lost, figures=figures))
