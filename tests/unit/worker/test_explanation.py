"""An explanation says in sentences what a project does, what it waits for, and what is too large."""

import json
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from tests.unit.worker.builders import a_dead_job, a_kind
from worker import keys
from worker.cluster_watch import Standstill
from worker.dead_jobs import DeadJob
from worker.explanation import Explanation, explain_project, hindrances
from worker.live_nodes import LiveNode
from worker.project_queue import Parked, ProjectQueue
from worker.project_state import PlanningFailure, ProjectState, StageProgress

GIB = 1 << 30
RUNNING = ProjectState(state="running", phase="matching", outstanding=7)
NIMBLE = LiveNode(
    name="nimble",
    budget_memory_bytes=8 * GIB,
    reserved_memory_bytes=2 * GIB,
    budget_cpu_threads=4,
    reserved_cpu_threads=1,
    waits_for="WAIT CPU_PSI: CPU pressure 36 % >= 20 %",
)
SMALL = LiveNode(name="small", budget_memory_bytes=2 * GIB, budget_cpu_threads=1)


class FakeQueue:
    """A queue with one project, its nodes, and jobs that were set aside."""

    def __init__(
        self, state: ProjectState, *nodes: LiveNode, large: tuple[tuple[str, int], ...] = ()
    ) -> None:
        self._state, self._nodes, self._large = state, list(nodes), large
        self.reports: list[DeadJob] = []
        self.heads: list[bytes] = []

    def state(self, _project: str) -> ProjectState:
        """Return the project's state."""
        return self._state

    def nodes(self) -> list[LiveNode]:
        """Return who is alive."""
        return self._nodes

    def parked_in(self, name: str) -> Iterator[Parked]:
        """Yield what was set aside of the one kind."""
        if name == keys.large("noop"):
            for project, needed_bytes in self._large:
                payload = json.dumps({"headers": {"project": project}}).encode()
                yield Parked(list="noop", payload=payload, score=needed_bytes)

    def first_waiting(self, _kinds: Sequence[str]) -> list[Parked]:
        """Return what waits first: a job of the project at the head of its list."""
        return [Parked(list="noop", payload=payload, is_head=True) for payload in self.heads]

    def waiting_in(self, _name: str) -> Iterator[bytes]:
        """Yield the messages of the list."""
        yield from self.heads

    def server_ms(self) -> int:
        """Return the server's time."""
        return 1_000_000

    def dead(self) -> Iterator[DeadJob]:
        """Yield the failed jobs."""
        yield from self.reports


def explained(queue: FakeQueue) -> Explanation:
    """Explain project p."""
    return explain_project(
        "p", cast("ProjectQueue", queue), {"noop": a_kind()}, {("match", "a"), ("match", "b")}
    )


def failed_job(job_id: str, item: str, project: str = "p") -> DeadJob:
    """Return a failed job."""
    return a_dead_job(job_id=job_id, project=project, stage="match", item=item, cause="torn")


def test_a_running_project_tells_phase_and_open_jobs() -> None:
    """And, stage by stage, what is done of what is planned."""
    stages = {"match": StageProgress(planned=9, done=4, failed=1), "plan": StageProgress(planned=2)}
    told = explained(
        FakeQueue(ProjectState(state="running", phase="matching", outstanding=4, stages=stages), SMALL)
    )

    assert told.sentences[0] == "it is running, in the phase matching, with 4 jobs open"
    assert told.sentences[1] == "match: 4 of 9 planned jobs done, 1 failed"
    assert not [sentence for sentence in told.sentences if sentence.startswith("plan")]


def test_each_node_tells_what_it_waits_for_and_what_is_free() -> None:
    """In the governor's own words."""
    lines = hindrances(RUNNING, [NIMBLE, SMALL])

    assert lines[0] == (
        f"node nimble waits: {NIMBLE.waits_for} (6.00 GiB of 8.00 GiB and 3 of 4 threads free)"
    )
    assert lines[1].startswith("node small works")


def test_without_nodes_a_running_project_waits_for_one() -> None:
    """One that is over does not."""
    assert "no worker is connected" in hindrances(RUNNING, [])[0]
    assert hindrances(ProjectState(state="done"), []) == []


def test_what_was_set_aside_names_the_largest_need_and_the_best_node() -> None:
    """Of this project only."""
    large = (("p", 20 * GIB), ("p", 12 * GIB), ("q", 90 * GIB))
    told = explained(FakeQueue(RUNNING, NIMBLE, SMALL, large=large))

    assert told.facts["set_aside_bytes"] == [20 * GIB, 12 * GIB]
    assert told.sentences[-1] == (
        "2 jobs were set aside as large: up to 20.0 GiB needed; the best node (nimble) offers 8.00 GiB"
    )


def test_failed_jobs_of_the_project_are_named_by_their_id() -> None:
    """So that `retry` can be told which."""
    queue = FakeQueue(RUNNING, SMALL)
    queue.reports = [failed_job("one", "a"), failed_job("two", "a", project="q")]

    assert [line for line in explained(queue).sentences if "has failed" in line] == [
        "job one has failed: torn"
    ]


def test_failed_jobs_that_were_tried_again_are_not_told() -> None:
    """Of an item that failed again the last one is; one that is no longer quarantined has been done since."""
    queue = FakeQueue(RUNNING, SMALL)
    queue.reports = [failed_job("new", "a"), failed_job("old", "a"), failed_job("done", "c")]

    assert [job["job_id"] for job in explained(queue).facts["failed_jobs"]] == ["new"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ProjectState(state="cancelled"), "it is cancelled; `tiepoint resume` goes on"),
        (ProjectState(state="done"), "it is done"),
        (ProjectState(state="unknown"), "the queue does not know it"),
        (
            ProjectState(state="failed", failure=PlanningFailure(cause="Full.", cure="Free some.")),
            "planning has failed: Full. Free some.",
        ),
    ],
)
def test_a_project_that_does_not_run_says_why(state: ProjectState, words: str) -> None:
    """And how it goes on."""
    assert explained(FakeQueue(state)).sentences[0].startswith(words)


def test_the_json_form_holds_sentences_and_facts() -> None:
    """It can be written as it is."""
    told = json.loads(json.dumps(explained(FakeQueue(RUNNING, NIMBLE)).to_dict()))

    assert (told["subject"], told["state"], told["outstanding"]) == ("p", "running", 7)
    assert told["nodes"][0]["name"] == "nimble"


def test_a_standstill_is_told_after_five_seconds_and_then_every_minute() -> None:
    """As long as nothing moves."""
    clock = [0.0]
    standstill = Standstill(lambda: clock[0])
    told = []
    for second in (0.0, 4.9, 5.0, 5.1, 64.9, 65.0):
        clock[0] = second
        told.append(bool(standstill.reasons(RUNNING, lambda: [SMALL])))

    assert told == [False, False, True, False, False, True]


def test_a_project_that_moves_does_not_stand_still() -> None:
    """The five seconds begin anew."""
    clock = [0.0]
    standstill = Standstill(lambda: clock[0])
    standstill.reasons(RUNNING, list)
    clock[0] = 4.0
    standstill.reasons(ProjectState(state="running", outstanding=6), list)
    clock[0] = 8.9

    assert standstill.reasons(ProjectState(state="running", outstanding=6), list) == []


def test_a_node_that_has_work_is_no_standstill() -> None:
    """One job may take long."""
    clock = [0.0]
    standstill = Standstill(lambda: clock[0])
    standstill.reasons(RUNNING, lambda: [SMALL])
    clock[0] = 5.0
    busy = standstill.reasons(RUNNING, lambda: [SMALL, NIMBLE])

    assert (busy, len(standstill.reasons(RUNNING, lambda: [SMALL]))) == ([], 1)
