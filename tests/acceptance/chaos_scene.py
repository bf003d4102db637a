"""Holds what a chaos run plays on: a server that keeps its data, machines, a store, and bare jobs.

Does not cover the faults (:mod:`tests.acceptance.chaos_faults`) nor projects
(:mod:`tests.acceptance.chaos_projects`).
"""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.catalog import load_kinds
from tasks.store import Store
from tests.acceptance.chaos_aof import AppendOnlyFile
from tests.acceptance.chaos_ledger import Ledger
from tests.acceptance.chaos_nodes import Machine
from tests.bench import reliability_kinds
from tests.bench.queue_messages import Template
from tests.bench.reliability_kinds import ONE
from tests.bench.reliability_log import RunLog
from tests.bench.reliability_nodes import STOCK, Setting, Sort
from tests.lasting_server import AOF_GLOB, LastingServer
from worker import keys
from worker.queue_counts import count_jobs

JOB_PREFIX = "job-"
_SENT = "chaos:sent"
"""The jobs whose message has been pushed; tells whether a push whose reply was lost was done."""
_GIB = 2**30
_ANSWER_SECONDS = 1.0
_TRIED_TWICE = re.compile(rb'^{"tiepoint":{"attempts":([2-9]|\d\d)')


def say(line: str) -> None:
    """Write a line of what the harness has to tell."""
    print(line, flush=True)  # noqa: T201 - the harness's output


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOptions:
    """What a run plays on."""

    sort: Sort
    folder: Path
    """An empty folder; stays, with the logs."""
    workers: int
    processes: int
    """Jobs at a time, of each worker."""
    lease_seconds: float
    """Stock has no lease; it takes jobs for lost that are not acknowledged after 5 times as long."""
    import_root: Path
    longest_job_seconds: float
    seed: int


class Scene:
    """One server, its machines, and what was sent; for the main thread."""

    def __init__(self, options: SceneOptions) -> None:
        self.options = options
        self.folder = options.folder
        self.server = LastingServer(options.folder)
        # What the harness asks must not hold it up while the server stands still.
        self.client = redis.Redis.from_url(
            self.server.redis_url, socket_timeout=_ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self.is_server_frozen = False
        self.store = Store(options.folder / "store")
        self.away = options.folder / "store.away"
        self.log = RunLog(options.folder / "runs")
        self.ledger = Ledger()
        self.problems: list[str] = []
        self.sent = 0
        self._is_unsure = False
        self._started = time.monotonic()
        self.machines = [Machine(options.sort, self._setting(n)) for n in range(options.workers)]
        self.store.create()
        self.server.start()
        self._kinds = list(load_kinds([reliability_kinds.__name__]))
        self._template = Template(self.server.broker_url, self.client, ONE)
        self._aof = AppendOnlyFile(next(options.folder.glob(AOF_GLOB)))
        self._aof.skip()

    @property
    def is_stock(self) -> bool:
        """Tell whether stock Celery is played with."""
        return self.options.sort is STOCK

    def _setting(self, number: int) -> Setting:
        options, name = self.options, f"node{number}"
        ours = {
            "lease_seconds": options.lease_seconds,
            "memory_bytes": 2 * _GIB,
            "import_roots": json.dumps([str(options.import_root)]),
            "lock_folder": options.folder / "machines" / name,
        }
        transport = {
            "visibility_timeout": 5 * options.lease_seconds,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
        return Setting(
            name=name,
            broker_url=self.server.broker_url,
            folder=options.folder,
            processes=options.processes,
            ours=ours,
            stock={"broker_transport_options": transport},
        )

    # -- The server ---------------------------------------------------------------------

    @property
    def server_is_up(self) -> bool:
        """Tell whether the server runs, and does not stand still."""
        return self.server.pid is not None and not self.is_server_frozen

    def may_kill(self, machine: Machine) -> bool:
        """Tell whether no job of a machine has been killed twice: a third time it would rightly be dead."""
        if not self.server_is_up:
            return False
        with suppress(redis.RedisError):
            names = list(self.client.scan_iter(f"{keys.INFLIGHT_PREFIX}{machine.node_name}|*"))
            texts: list[Any] = [text for name in names for text in self.client.hvals(name)]
            return not any(_TRIED_TWICE.match(text) for text in texts)
        return False

    # -- Bare jobs ----------------------------------------------------------------------

    def send(self) -> bool:
        """Give one more job to the queue, once; False where the server did not say that it has it."""
        number = self.sent
        if not self.server_is_up:
            return False
        try:
            if not self.client.sismember(_SENT, str(number)):
                pipeline = self.client.pipeline(transaction=True)
                pipeline.sadd(_SENT, str(number))
                pipeline.lpush(ONE, self._message(number))
                pipeline.execute()
        except redis.RedisError:
            self._is_unsure = True  # Next time it is seen whether it was done.
            return False
        self._is_unsure = False
        self.sent += 1
        return True

    def _message(self, number: int) -> str:
        job_id = f"{JOB_PREFIX}{number}"
        seconds = random.Random(f"{self.options.seed}:{number}").uniform(0, self.options.longest_job_seconds)
        text = self._template.copy(job=number, log=str(self.log.path), seconds=round(seconds, 3))
        message = json.loads(text)
        message["headers"] |= {"id": job_id, "root_id": job_id}
        return json.dumps(message)

    # -- What has become of them --------------------------------------------------------

    def look(self) -> None:
        """Bring the account up to date, and note what is wrong with it."""
        self.ledger.enter(self._aof.transactions())
        if not self.is_stock:
            self._check()
            self._count()

    def _count(self) -> None:
        """Ask the server itself as well: what it has counted, in one step, is all that was sent."""
        if not self.server_is_up or self._is_unsure:
            return  # Looked at again when that is over.
        with suppress(redis.RedisError):
            counts = count_jobs(self.client, self._kinds)
            if (sent := counts.total - counts.pushed) != self.sent:
                self.complain(f"{self.sent} jobs were sent, the server counts {sent}")

    def _check(self) -> None:
        ledger = self.ledger
        seen = [job for job in ledger.places if job.startswith(JOB_PREFIX)]
        if len(seen) < self.sent:
            self.complain(f"{self.sent} jobs were sent, the server has seen {len(seen)}")
        for what, jobs in (
            ("in no place, and not settled", ledger.ever_astray),
            ("settled twice, or given out again when settled", ledger.doubled),
            ("settled as done, but never ran to its end", self._done_without_end()),
        ):
            if jobs:
                self.complain(f"{what}: {', '.join(sorted(jobs)[:5])}")
        if ledger.most_places > 1:
            self.complain(f"a message was in {ledger.most_places} places at once")

    def _done_without_end(self) -> set[str]:
        ended = {f"{JOB_PREFIX}{job}" for job in self.ends()}
        settled = {job for job in self.ledger.settled if job.startswith(JOB_PREFIX)}
        return settled - ended - set(self.ledger.dead)

    def ends(self) -> Counter[int]:
        """Return how often each bare job ran to its end."""
        return Counter(line.job for line in self.log.ends())

    def lost(self) -> set[str]:
        """Return the jobs that nobody knows any more: the account, or for stock what the jobs have told."""
        if not self.is_stock:
            return self.ledger.lost
        ended = {f"{JOB_PREFIX}{job}" for job in self.ends()}
        return {f"{JOB_PREFIX}{number}" for number in range(self.sent)} - ended - self.ledger.waiting

    def complain(self, problem: str) -> None:
        """Note what must not be, once."""
        if problem not in self.problems:
            self.problems.append(problem)
            self.say(f"PROBLEM {problem}")

    def say(self, what: str) -> None:
        """Tell what happens, and when."""
        say(f"{time.monotonic() - self._started:7.1f} s  {what}")

    def is_quiet(self) -> bool:
        """Tell whether the queue holds nothing."""
        self.look()
        return not self.ledger.waiting and not (self.is_stock and self.ledger.astray)

    def held(self) -> set[str]:
        """Return the jobs that the server itself says it holds; for the check of the account."""
        found = Ledger()
        for key in self.client.scan_iter():
            found.enter([[_as_command(self.client, key)]])
        return found.waiting


@contextmanager
def scene(options: SceneOptions) -> Iterator[Scene]:
    """Set the stage in an empty folder; whatever runs at the end is killed."""
    made = Scene(options)
    try:
        yield made
    finally:
        for machine in made.machines:
            machine.kill()
        made.server.kill()
        made.client.close()


def _as_command(client: Any, key: bytes) -> tuple[bytes, ...]:
    """Return the command that would make a key what it is."""
    kind = client.type(key)
    if kind == b"list":
        return (b"LPUSH", key, *client.lrange(key, 0, -1))
    if kind == b"hash":
        return (b"HSET", key, *(part for pair in client.hgetall(key).items() for part in pair))
    if kind == b"zset":
        return (b"ZADD", key, *client.zrange(key, 0, -1))
    return (b"SET", key)
