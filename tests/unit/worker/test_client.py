"""The client ends a cancellation before it starts a project again, and kills nothing of a new run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import Failure, ProjectError, Reason
from tasks.parameters import ProjectParameters
from tasks.store import Project, Source
from tests.unit.worker.builders import a_dead_job
from worker.client import Client
from worker.dead_jobs import DeadJob
from worker.dead_list import PutBack
from worker.live_nodes import LiveNode
from worker.project_state import ProjectState


class FakeQueue:
    """A queue on which one job of a cancelled project runs; it notes what is done in which order."""

    def __init__(self, *, state: str = "cancelled") -> None:
        self._state = state
        self.held = {"job": "nimble"}
        self.calls: list[str] = []
        self.reports: list[DeadJob] = []
        self.is_put_back = PutBack.WAITS_AGAIN

    def check_room(self) -> None:
        """Have room."""

    def state(self, _project: str) -> ProjectState:
        """Return the project's state."""
        return ProjectState(state=self._state)

    def nodes(self) -> list[LiveNode]:
        """Return the nodes that are alive: none says so."""
        return []

    def running(self, _project: str) -> dict[str, str]:
        """Return what nodes hold."""
        return dict(self.held)

    def cancel(self, _project: str, _kinds: list[str]) -> tuple[str, int]:
        """Cancel what was running."""
        return "running", 5

    def until(self, _project: str) -> str:
        """Return the last phase."""
        return "model"

    def forget_dead(self, project: str, stage: str = "", item: str = "") -> int:
        """Drop reports."""
        self.calls.append(" ".join(filter(None, ("forget", project, stage, item))))
        return 0

    def dead(self) -> Iterator[DeadJob]:
        """Yield the failed jobs."""
        yield from self.reports

    def put_back(self, job: DeadJob) -> PutBack:
        """Put a job back, or not."""
        self.calls.append(f"put back {job.job_id}")
        return self.is_put_back

    def start(self, _project: str, *, until: str, contract: object = None) -> None:  # noqa: ARG002 - the queue's signature
        """Start the project."""
        self.calls.append(f"start until {until}")


class QuietClient(Client):
    """A client whose nodes give a job up as soon as it is revoked."""

    def __init__(self, store: Path, queue: FakeQueue) -> None:
        super().__init__("redis://127.0.0.1:1/0", store)
        self._queue = queue  # type: ignore[assignment]
        self._fake = queue

    def _revoke(self, job_ids: list[str]) -> None:
        self._fake.calls += [f"revoke {job}" for job in job_ids]
        self._fake.held.clear()


@pytest.fixture
def queue() -> FakeQueue:
    """Return a queue on which a job of the cancelled project runs."""
    return FakeQueue()


@pytest.fixture
def client(tmp_path: Path, queue: FakeQueue) -> Client:
    """Return a client of that queue, with the project castle in its store."""
    client = QuietClient(tmp_path, queue)
    client.store.project("castle").create(ProjectParameters(), [Source(name="a.jpg", path="/a.jpg")])
    return client


def failed(project: Project, item: str, reason: Reason) -> None:
    """Quarantine an item."""
    project.record_failure("features", item, Failure(name=item, reason=reason, cause="It.", cure="Do."))


def test_jobs_of_the_cancelled_run_are_killed_before_the_next_run_starts(
    client: Client, queue: FakeQueue
) -> None:
    """Killed afterwards, they would count as failures of the new run."""
    client.retry("castle")

    assert queue.calls == ["revoke job", "forget castle", "start until model"]


def test_a_project_that_was_started_again_meanwhile_loses_no_job(tmp_path: Path) -> None:
    """What runs then is meant to."""
    queue = FakeQueue(state="running")
    client = QuietClient(tmp_path, queue)
    client.store.project("castle").create(ProjectParameters(), [Source(name="a.jpg", path="/a.jpg")])

    assert client.cancel("castle").still_running == 0
    assert queue.calls == []


def test_what_was_killed_has_not_failed(client: Client) -> None:
    """Other failures stay to be seen."""
    project = client.project("castle")
    failed(project, "killed", Reason.CANCELLED)
    failed(project, "broken", Reason.TRUNCATED)
    client.cancel("castle")

    assert [item for _, item, _ in project.failures()] == ["broken"]


def test_a_job_that_no_node_gives_up_is_counted(client: Client, queue: FakeQueue) -> None:
    """The waiting has an end."""
    queue.held = dict.fromkeys(("a", "b"), "frozen")

    assert client.cancel("castle", wait_seconds=0.0).still_running == 2


def test_submitting_again_tries_again_what_had_failed(
    client: Client, queue: FakeQueue, tmp_path: Path
) -> None:
    """The reports of the last run are of no use then."""
    photos = tmp_path / "tower"
    photos.mkdir()
    (photos / "a.jpg").write_bytes(b"a photo")
    client.submit(photos, until="import")

    assert queue.calls[-2:] == ["forget tower", "start until import"]


def test_a_failed_item_of_a_project_is_planned_anew(client: Client, queue: FakeQueue) -> None:
    """Its failure and its report are gone before the project looks; other failures stay."""
    project = client.project("castle")
    for item in ("a", "b"):
        failed(project, item, Reason.TRUNCATED)
    queue.reports = [a_dead_job(project="castle", stage="features", item="a")]

    assert client.retry("7") == "castle"
    assert queue.calls == ["revoke job", "forget castle features a", "start until model"]
    assert project.failed_items("features") == {"b"}


def test_a_job_of_no_project_is_put_back(client: Client, queue: FakeQueue) -> None:
    """No project starts."""
    queue.reports = [a_dead_job(job_id="6"), a_dead_job(job_id="7")]

    assert client.retry("7") is None
    assert queue.calls == ["put back 7"]


@pytest.mark.parametrize(
    ("report", "is_put_back", "told"),
    [
        (a_dead_job(job_id="6"), PutBack.WAITS_AGAIN, "nor a job that has failed; .*explain 7. says whether"),
        (a_dead_job(ending="cancelled"), PutBack.WAITS_AGAIN, "was revoked .*send it again as a new job"),
        (a_dead_job(), PutBack.GONE, "has been put back already"),
        (a_dead_job(), PutBack.NOT_KEPT, "was not kept: it has more than 64 KiB"),
        (a_dead_job(project="ruin", stage="s", item="i"), PutBack.WAITS_AGAIN, "holds no project ruin"),
    ],
    ids=["not dead", "revoked", "gone", "too long", "no such project"],
)
def test_what_cannot_be_tried_again_is_told_with_its_cause(
    client: Client, queue: FakeQueue, report: DeadJob, is_put_back: PutBack, told: str
) -> None:
    """And, where there is one, with another way."""
    queue.reports, queue.is_put_back = [report], is_put_back

    with pytest.raises(ProjectError, match=told):
        client.retry("7")
