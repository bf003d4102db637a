"""Holds the scene of one case: a server of its own, workers of one sort, the jobs given to them.

Both sorts get the same jobs from the same stock client, and are judged by the
same eyes: the lines that jobs write, and the messages that the server holds.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from celery.states import FAILURE

from tasks.store import Store
from tests import waiting
from tests.bench.reliability_kinds import NAMES, ONE
from tests.bench.reliability_log import RunLog, Tally, tally
from tests.bench.reliability_nodes import TIEPOINT, Node, Setting, Sort, running_node
from tests.lasting_server import LastingServer
from worker import keys
from worker.connections import plain_client
from worker.queue_counts import QueueCounts, count_jobs

DEADLINE_SECONDS = 60.0
"""How long a case waits for what must happen."""
PATIENCE_SECONDS = 15.0
"""Enough for a job without work to start and end on any worker."""
PLAN = "plan"
"""The list that plans of projects are in."""
_POLL_SECONDS = 0.02
_ID = re.compile(rb'"id": ?"job-(\d+)"')
_NO_MESSAGES = (b"celery-task-meta-", keys.DEAD.encode(), keys.PROJECT_PREFIX.encode())
_RESULTS = "celery-task-meta-job-"


class Scene:
    """One server, its workers, a client; for one thread."""

    def __init__(self, sort: Sort, folder: Path, stack: ExitStack) -> None:
        self.sort = sort
        self.folder = folder
        self.redis = LastingServer(folder)
        self.client = plain_client(self.redis.redis_url)
        self.log = RunLog(folder / "runs")
        self.store = Store(folder / "store")
        self.patience_seconds = PATIENCE_SECONDS
        """How long a play waits for what happens with a queue that loses nothing."""
        self.jobs = 0
        self.plans = 0
        """Jobs besides, that write no lines: the plans of projects."""
        self._stack = stack
        self._settings: dict[str, Any] = {}
        self.redis.start()

    def configure(self, **settings: Any) -> None:
        """Set what workers are started with from now on: ``stock``, ``ours``, ``lost_events``."""
        self._settings |= settings

    def start(self, name: str, *, processes: int = 1) -> Node:
        """Start a worker and wait until it is ready."""
        setting = Setting(
            name=name,
            broker_url=self.redis.broker_url,
            folder=self.folder,
            processes=processes,
            **self._settings,
        )
        return self._stack.enter_context(running_node(self.sort, setting, self.client))

    def send(self, **arguments: Any) -> int:
        """Give one job to the queue; its number. See :meth:`sender`."""
        with self.sender() as send:
            return send(**arguments)

    @contextmanager
    def sender(self) -> Iterator[Callable[..., int]]:
        """Connect once; a function that gives a job: ``kind``, ``options`` of Celery, the job's arguments."""
        with (
            Celery(broker=self.redis.broker_url, set_as_current=False) as client,
            client.connection_for_write() as link,
        ):
            link.ensure_connection()
            yield partial(self._send, client, link)

    def _send(
        self,
        client: Celery,
        link: Any,
        *,
        kind: str = ONE,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> int:
        job = self.jobs
        self.jobs += 1
        client.send_task(
            kind,
            kwargs={"job": job, "log": str(self.log.path), **arguments},
            queue=kind,
            task_id=f"job-{job}",
            connection=link,
            **(options or {}),
        )
        return job

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return what each worker answers to ``inspect stats``, by its name."""
        with Celery(broker=self.redis.broker_url, set_as_current=False) as client:
            replies: dict[str, Any] = dict(client.control.inspect(timeout=2).stats() or {})
        return {name.partition("@")[0]: reply for name, reply in replies.items()}

    # -- What has become of the jobs --------------------------------------------------

    def held(self) -> set[int]:
        """Return the jobs that the server has a message of, wherever that is."""
        texts = [text for key in self.client.scan_iter() for text in _texts(self.client, key)]
        return {int(job) for text in texts for job in _ID.findall(text)}

    def failed(self) -> dict[int, dict[str, Any]]:
        """Return the jobs that were given up, with what is said of each."""
        reports = [json.loads(report) for report in self.client.lrange(keys.DEAD, 0, -1)]
        failed = {int(report["job_id"].removeprefix("job-")): report for report in reports}
        return failed | self._results(FAILURE)

    def results(self, status: str) -> int:
        """Return how many results stock has kept with a status; ours keeps none."""
        return len(self._results(status))

    def _results(self, status: str) -> dict[int, dict[str, Any]]:
        names: list[Any] = list(self.client.scan_iter(f"{_RESULTS}*"))
        kept = zip(names, self.client.mget(names) if names else [], strict=True)
        results = {int(name.decode().removeprefix(_RESULTS)): json.loads(text) for name, text in kept if text}
        return {job: result for job, result in results.items() if result["status"] == status}

    def tally(self) -> Tally:
        """Count what has become of all jobs so far."""
        accepted = self.counts().done - self.plans if self.sort is TIEPOINT else None
        return tally(self.log, self.jobs, failed=self.failed(), held=self.held(), accepted=accepted)

    def counts(self) -> QueueCounts:
        """Return what our queue itself says about where all jobs are."""
        return count_jobs(self.client, [*NAMES, PLAN])

    def is_over(self) -> bool:
        """Tell whether each job is done or given up, none runs any more, and the queue holds nothing."""
        told = {line.job for line in self.log.ends()} | set(self.failed())
        return len(told) == self.jobs and not self.held() and not self.log.is_any_running()

    # -- Waiting ----------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for what must happen with either sort."""
        return waiting.wait_until(condition, what, deadline_seconds=DEADLINE_SECONDS)

    def watch(self, seconds: float, until: Callable[[], Any] | None = None) -> bool:
        """Look on until all is over (or what else is named), at most for so long; whether it came to that."""
        condition = until or self.is_over
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(_POLL_SECONDS)
        return False


@contextmanager
def scene(sort: Sort, folder: Path) -> Iterator[Scene]:
    """Set up a scene in an empty folder; whatever runs at the end is killed."""
    with ExitStack() as stack:
        made = Scene(sort, folder, stack)
        stack.callback(made.redis.kill)
        stack.enter_context(closing(made.client))
        made.store.create()
        yield made


def _texts(client: "redis.Redis", key: bytes) -> list[bytes]:
    if key.startswith(_NO_MESSAGES):
        return []
    read: dict[Any, Callable[[], Any]] = {
        b"list": partial(client.lrange, key, 0, -1),
        b"hash": partial(client.hvals, key),
        b"zset": partial(client.zrange, key, 0, -1),
    }
    found = read.get(client.type(key))
    return list(found()) if found else []
