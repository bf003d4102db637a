"""Holds the Python client of a cluster: submit photos, watch, cancel, retry, explain.

    client = Client("redis://nas:6379/0", store=Path("/mnt/nas/tiepoint"))
    project_id = client.submit(Path("photos"))
    for state in client.watch(project_id):
        print(state.phase, state.outstanding)

The store is a folder that this machine and all nodes see. Does not cover
results (:mod:`tasks.summary`, :mod:`tasks.exports`), nor projects of one
machine (:mod:`worker.local_project`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from celery import Celery

from governor.planning.contract import Contract
from tasks.catalog import load_kinds
from tasks.errors import ProjectError, Reason, StoreError
from tasks.expand import PHASES, Phase
from tasks.parameters import ProjectParameters
from tasks.store import Project, Store
from tasks.store.keys import is_name
from worker.blocked import Blocked
from worker.dead_jobs import DeadJob
from worker.dead_list import PutBack
from worker.explanation import Explanation, explain_project
from worker.job_explanation import Nodes, explain_job
from worker.live_nodes import LiveNode
from worker.project_queue import ProjectQueue, QueueError, queue_errors
from worker.project_state import ProjectState
from worker.queue_counts import QueueCounts
from worker.settings import Settings
from worker.submission import Wanted, check_matcher, check_nodes, make_project, name_for, photos_of
from worker.trace_command import Answer, ask_nodes
from worker.waiting_jobs import blocked_jobs

__all__ = ["Cancelled", "Client", "ProjectError", "ProjectState", "QueueError", "StoreError"]

_POLL_SECONDS = 0.5
_STOP_SECONDS = 30.0
_STOP_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What cancelling has come to."""

    removed: int
    """Jobs taken out of the queues."""
    still_running: int
    """Jobs that nodes had not given up when the waiting ended; their results change nothing any more."""


class Client:
    """One cluster: a queue, and the store that its nodes work on; for one thread.

    Making one connects to nothing. Methods raise QueueError where the queue
    does not answer, StoreError where the store cannot be used, ProjectError
    where what is asked for makes no sense; each text says what to do.
    """

    def __init__(self, broker_url: str, store: Path, *, kind_modules: Sequence[str] = ()) -> None:
        settings = Settings.checked(broker_url=broker_url)
        self.broker_url = settings.broker_url
        self.store = Store(Path(store).resolve())
        self._queue = ProjectQueue(settings.redis_url)
        self._kinds = load_kinds(kind_modules)

    def submit(
        self,
        photos: Path | str | Sequence[Path],
        *,
        name: str | None = None,
        parameters: ProjectParameters | None = None,
        link: bool = False,
        until: Phase = "model",
        contract: Contract | None = None,
    ) -> str:
        """Make a project of a folder of photos, or of listed ones, and start it; returns its name.

        The same photos and parameters again continue the project they have
        become, and whatever had failed is tried again. ``link`` leaves the
        photos where they are: every node must see them there. ``contract`` says who
        comes first, and until when results are of use; without one the project is best effort.

        Raises:
            ProjectError: no photos; the name belongs to another project; a
                live node works on another store, none may read the photos, or
                none can match on a GPU where the parameters want that.
        """
        self._check_store()
        photos = Path(photos) if isinstance(photos, str) else photos
        sources = photos_of(photos, self.store)
        nodes = self._queue.nodes()
        check_nodes(nodes, self.store, sources, link=link)
        wanted = Wanted(sources=sources, parameters=parameters or ProjectParameters(), link=link)
        check_matcher(nodes, wanted.parameters)
        self._queue.check_room()
        project = make_project(self.store, wanted, name=name, default_name=name_for(photos))
        self._end_cancelling(project.id)
        project.clear_failures()
        self._queue.forget_dead(project.id)
        self._queue.start(project.id, until=until, contract=contract)
        return project.id

    def projects(self) -> list[str]:
        """Return the names of the projects in the store, sorted."""
        self._check_store()
        return self.store.project_ids()

    def project(self, project_id: str) -> Project:
        """Return a project of the store.

        Raises:
            ProjectError: there is none of that name.
        """
        self._check_store()
        if not is_name(project_id) or not self.store.project(project_id).exists():
            raise ProjectError(
                f"the store {self.store.root} holds no project {project_id}; `tiepoint status` lists them"
            )
        return self.store.project(project_id)

    def state(self, project_id: str) -> ProjectState:
        """Return a project's live state: what the queue knows of it."""
        return self._queue.state(project_id)

    def nodes(self) -> list[LiveNode]:
        """Return the nodes that are alive."""
        return self._queue.nodes()

    def watch(self, project_id: str, *, poll_seconds: float = _POLL_SECONDS) -> Iterator[ProjectState]:
        """Yield the live state again and again, the last time when the project is no longer running."""
        while True:
            state = self._queue.state(project_id)
            yield state
            if state.state != "running":
                return
            time.sleep(poll_seconds)

    def cancel(self, project_id: str, *, wait_seconds: float = _STOP_SECONDS) -> Cancelled:
        """Stop a running project: what waits is removed, what runs is killed, nothing follows.

        What it has finished stays in the store; :meth:`retry` or submitting
        again goes on from there.

        Raises:
            ProjectError: it is not running.
        """
        self.project(project_id)
        before, removed = self._queue.cancel(project_id, list(self._kinds))
        if before not in {"running", "cancelled"}:
            raise ProjectError(f"{project_id} is not running (it is {before or 'unknown to the queue'})")
        still_running = self._stop_running(project_id, wait_seconds)
        self.project(project_id).clear_failures(Reason.CANCELLED)  # What was killed has not failed.
        return Cancelled(removed=removed, still_running=still_running)

    def _end_cancelling(self, project_id: str) -> None:
        """Let a cancellation that may be under way come to its end: a new run must not lose jobs to it."""
        if self._queue.state(project_id).state == "cancelled":
            self._stop_running(project_id, _STOP_SECONDS)

    def _stop_running(self, project_id: str, wait_seconds: float) -> int:
        """Have the nodes kill a project's jobs; return how many are left when the time is over."""
        revoked: set[str] = set()
        deadline = time.monotonic() + wait_seconds
        while running := self._queue.running(project_id):
            if self._queue.state(project_id).state != "cancelled":
                return 0  # Somebody has started it again: what runs now is meant to.
            new = sorted(running.keys() - revoked)
            if new:
                self._revoke(new)
                revoked.update(new)
            if time.monotonic() >= deadline:
                return len(running)
            time.sleep(_STOP_POLL_SECONDS)
        return 0

    def _revoke(self, job_ids: list[str]) -> None:
        with queue_errors(), Celery(broker=self.broker_url) as app:
            # Children hold nothing that a signal could spoil.
            app.control.revoke(job_ids, terminate=True, signal="SIGKILL")

    def retry(self, name: str, *, until: Phase | None = None) -> str | None:
        """Try again what had failed: of a whole project, or one failed job by its id; returns the project.

        A project that was cancelled, or whose state Redis has lost, goes on. A
        job of no project (None) waits in its list again, as it was sent.

        Raises:
            ProjectError: neither a project of the store nor a job that has failed,
                or nothing is kept of that job that could be put back.
        """
        self._check_store()
        if name not in self.store.project_ids():
            return self._retry_job(name)
        project = self.project(name)
        self._queue.check_room()
        self._end_cancelling(name)
        project.clear_failures()
        self._queue.forget_dead(name)
        self._start_again(project, until)
        return name

    def _retry_job(self, job_id: str) -> str | None:
        dead = next((job for job in self._queue.dead() if job.job_id == job_id), None)
        if dead is None:
            raise ProjectError(
                f"{job_id} is neither a project in {self.store.root} nor a job that has failed; "
                "`tiepoint status` lists the projects, `tiepoint dead` the failed jobs, and "
                f"`tiepoint explain {job_id}` says whether it waits or runs"
            )
        if dead.place is None:
            self._put_back(dead)
            return None
        project = self.project(dead.place.project)
        self._queue.check_room()
        self._end_cancelling(project.id)
        project.clear_failure(dead.place.stage, dead.place.item)
        self._queue.forget_dead(project.id, dead.place.stage, dead.place.item)
        self._start_again(project, None)
        return project.id

    def _put_back(self, dead: DeadJob) -> None:
        problem = dead.retry_problem()
        if problem is not None:
            raise ProjectError(f"the job {dead.job_id} {problem}")
        match self._queue.put_back(dead):
            case PutBack.GONE:
                raise ProjectError(
                    f"the job {dead.job_id} has been put back already; `tiepoint explain {dead.job_id}` "
                    "says where it is"
                )
            case PutBack.NOT_KEPT:
                raise ProjectError(
                    f"the message of the job {dead.job_id} was not kept: it has more than 64 KiB, "
                    "or a worker of a former version has failed it; "
                    "send it again as it was sent"
                )
            case PutBack.WAITS_AGAIN:
                return

    def dead(self) -> Iterator[DeadJob]:
        """Yield the jobs that have failed for good, newest first; those tried again since are gone."""
        return self._queue.dead()

    def counts(self) -> QueueCounts:
        """Count where all jobs are, at one moment."""
        return self._queue.counts(list(self._kinds))

    def _start_again(self, project: Project, until: Phase | None) -> None:
        check_matcher(self._queue.nodes(), project.parameters)
        last = until or self._queue.until(project.id)
        self._queue.start(project.id, until=last if last in PHASES else "model")

    def explain(self, name: str) -> Explanation:
        """Say where a project, or a job by its id, is and why."""
        if is_name(name) and self.store.project(name).exists():
            failed = {(stage, item) for stage, item, _ in self.store.project(name).failures()}
            return explain_project(name, self._queue, self._kinds, failed)
        nodes = Nodes(started_at=self._started_at, decisions=self._decisions)
        return explain_job(name, self._queue, self._kinds, nodes)

    def blocked(self, project_id: str | None = None) -> list[Blocked]:
        """Return what no live node has room for, of one project or of all; one per kind and cause."""
        return blocked_jobs(self._queue, self._kinds, self._queue.nodes(), project_id)

    def _decisions(self, kind: str, alive: int) -> list[Answer]:
        """Ask each node for its last decision for a kind."""
        with queue_errors():
            return ask_nodes(self.broker_url, kind=kind, most=1, alive=alive, timeout_seconds=_ANSWER_SECONDS)

    def _started_at(self, job_id: str) -> float | None:
        """Ask the nodes since when one of them runs a job, in seconds since 1970; None where none says."""
        with queue_errors(), Celery(broker=self.broker_url) as app:
            replies = app.control.inspect(timeout=_ANSWER_SECONDS).query_task(job_id) or {}
        jobs = (jobs[job_id][1] for jobs in replies.values() if job_id in jobs)
        return next((job["time_start"] for job in jobs if job.get("time_start")), None)

    def close(self) -> None:
        """Close the connection."""
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_store(self) -> None:
        if not self.store.root.is_dir():
            raise ProjectError(
                f"the store {self.store.root} is not a folder on this machine; "
                "mount it here as on the nodes, or name another with --store"
            )
