"""Whoever gets further is never given up, and whoever does not always is: looks decide it."""

import random

import pytest

from tasks.kind import Job
from tasks.looks import MAX_LOOKS, MAX_STALLS, History, Look


def look(*items: str, phase: str = "features") -> Look:
    """Return a look that found these items lacking."""
    return Look(phase=phase).with_jobs(_job(item) for item in items)


def _job(item: str) -> Job:
    return Job(kind="features.extract", payload={}, project="tiny", stage="features", item=item)


def history_of(*looks: Look) -> History:
    """Return what follows from looks, one after the other."""
    history = History()
    for each in looks:
        history = history.after(each)
    return history


def test_a_look_is_the_same_in_any_order_and_any_windows() -> None:
    """Only which jobs are lacking counts."""
    jobs = [_job(str(number)) for number in range(20)]
    shuffled = random.Random(0).sample(jobs, 20)
    in_windows = Look(phase="features").with_jobs(shuffled[:7]).with_jobs(shuffled[7:])

    assert in_windows == Look(phase="features").with_jobs(jobs)
    assert in_windows != Look(phase="features").with_jobs(jobs[1:])
    assert look("a", "b") != look("a", "c")


@pytest.mark.parametrize(("times", "is_hopeless"), [(MAX_STALLS - 1, False), (MAX_STALLS, True)])
def test_the_same_look_is_hopeless_after_its_last_repetition(times: int, is_hopeless: bool) -> None:  # noqa: FBT001
    """Three times the same jobs, and not one of them got done."""
    history = history_of(*[look("a", "b")] * times)

    assert history.is_suspicious is is_hopeless
    assert history.is_hopeless(look("a", "b")) is is_hopeless
    assert not history.is_hopeless(look("a"))
    assert not history.is_hopeless(look("b", "c"))


def test_looks_that_take_turns_are_hopeless_too() -> None:
    """A feature set that is lost whenever it is read leads from phase to phase for ever."""
    turns = [look("photo"), look("pair", phase="matching")] * (MAX_STALLS + 1)

    assert not history_of(*turns[:-2]).is_suspicious
    assert history_of(*turns[:-1]).is_hopeless(look("photo"))


def test_repairing_one_thing_after_the_other_is_never_given_up() -> None:
    """Each look finds another photo lacking, and then the same tracks."""
    history = History()
    for number in range(MAX_LOOKS // 2):
        history = history.after(look(str(number))).after(look("main", phase="tracks"))

        assert not history.is_suspicious


def test_fewer_lacking_jobs_than_ever_are_progress_however_long_it_takes() -> None:
    """A project that gets one item done per look gets done."""
    items = [str(number) for number in range(2 * MAX_LOOKS)]
    history = History()
    for done in range(len(items)):
        history = history.after(look(*items[done:]))

        assert not history.is_suspicious
    assert len(history.seen) == 1


def test_ever_different_looks_without_progress_come_to_an_end() -> None:
    """A store that loses at random is given up, and the notes stay short."""
    history = history_of(look("a"))
    for number in range(MAX_LOOKS + MAX_STALLS):
        history = history.after(look(f"{number}", f"{number + 1}"))

    assert history.is_hopeless(look("another", "one"))
    assert len(history.seen) <= MAX_LOOKS + 5
    assert len(history.model_dump_json()) < 32 << 10
