"""A watcher hears once of what is blocked, and when that is over; other jobs may go on."""

from dataclasses import replace

from tests.unit.worker.test_blocked import a_node, a_waiting_job, judged
from worker.blocked import Blocked
from worker.cluster_watch import BlockedNews
from worker.project_state import ProjectState

RUNNING = ProjectState(state="running")
BIG = judged(a_waiting_job(12), a_node())


def test_what_is_blocked_is_told_once_and_again_when_it_is_over() -> None:
    """More jobs of the same cause are no news."""
    clock = [0.0]
    news = BlockedNews(lambda: clock[0])
    told = []
    for found in ([BIG], [replace(BIG, jobs=2)], [], []):
        told.append(news.sentences(RUNNING, lambda found=found: list(found)))  # type: ignore[misc]
        clock[0] += 2.0

    assert told == [[BIG.sentence()], [], ["no longer blocked: noop"], []]


def test_the_queue_is_looked_at_every_two_seconds_while_the_project_runs() -> None:
    """Not with every state, and no more when it is over."""
    clock, looks = [0.0], [0]

    def look() -> list[Blocked]:
        looks[0] += 1
        return []

    news = BlockedNews(lambda: clock[0])
    for second, state in ((0.0, RUNNING), (1.9, RUNNING), (2.0, RUNNING), (9.0, ProjectState(state="done"))):
        clock[0] = second
        news.sentences(state, look)

    assert looks == [2]
