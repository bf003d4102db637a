"""Keeps account of every job's message, from what the server did: where it is, how often it was settled.

The server's append-only file is replayed step by step, so that conservation
is checked after each transaction, not only when somebody looks. Knows our keys
and those of stock Celery. Does not cover what jobs do (they tell themselves).
"""

import json
import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.acceptance.chaos_aof import Command, Transaction
from worker import keys

_ID = re.compile(rb'"id": ?"([^"]+)"')
_HASHES = (keys.INFLIGHT_PREFIX.encode(), b"unacked")
_ZSETS = (keys.DELAYED.encode(), keys.LARGE_PREFIX.encode())
_DEAD = keys.DEAD.encode()
_SETTLING = b"HDEL"
"""A message that leaves what its holder has is settled, unless it goes somewhere else in the same step."""


@dataclass
class _Step:
    """What one transaction did to the jobs' messages."""

    added: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    """Taken from what a node holds, by name."""
    removed: Counter[str] = field(default_factory=Counter)
    """Taken from elsewhere, or with all that a node holds."""
    let_go: set[str] = field(default_factory=set)
    """Of jobs that a node held before."""
    requeued: set[str] = field(default_factory=set)
    """Of jobs that are in a list or set aside now."""

    def jobs(self) -> set[str]:
        return set(self.added) | set(self.settled) | set(self.removed)


@dataclass
class Ledger:
    """The account of all jobs; a job is one whose message was ever seen."""

    places: Counter[str] = field(default_factory=Counter)
    """In how many places each job's message is now."""
    settled: Counter[str] = field(default_factory=Counter)
    """How often a message of each job left the queue for good, done or given up."""
    astray: Counter[str] = field(default_factory=Counter)
    """Messages that are nowhere and were not settled; some of stock's come back, ours are never there."""
    dead: Counter[str] = field(default_factory=Counter)
    """Reports of failed jobs."""
    most_places: int = 0
    """The most places that any job's message was in after any transaction."""
    ever_astray: set[str] = field(default_factory=set)
    transactions: int = 0
    given_back: int = 0
    """How often a message that a node held went back to the queue."""

    def __post_init__(self) -> None:
        self._lists: dict[bytes, deque[str | None]] = {}
        self._hashes: dict[bytes, dict[bytes, str]] = {}

    # -- What has become of the jobs ----------------------------------------------------

    @property
    def waiting(self) -> set[str]:
        """Return the jobs that the queue holds."""
        return {job for job, places in self.places.items() if places > 0}

    @property
    def lost(self) -> set[str]:
        """Return the jobs that are nowhere, and were neither settled nor given up."""
        return {job for job in self.astray if job not in self.settled and job not in self.dead} - self.waiting

    @property
    def doubled(self) -> set[str]:
        """Return the jobs that were settled twice, or are waiting although they have been settled."""
        twice = {job for job, times in self.settled.items() if times > 1}
        return twice | (self.waiting & set(self.settled))

    # -- Reading ------------------------------------------------------------------------

    def enter(self, transactions: Iterable[Transaction]) -> None:
        """Enter what the server did."""
        for transaction in transactions:
            self.transactions += 1
            step = _Step()
            for command in transaction:
                self._apply(command, step)
            for job in step.jobs():
                self._book(job, step)
            self.given_back += len(step.let_go & step.requeued)

    def _book(self, job: str, step: _Step) -> None:
        added = step.added[job]
        self.places[job] += added - step.settled[job] - step.removed[job]
        self.most_places = max(self.most_places, self.places[job])
        # What was moved is neither settled nor astray.
        removed = max(0, step.removed[job] - added)
        settled = max(0, step.settled[job] - max(0, added - step.removed[job]))
        more = max(0, added - step.removed[job] - step.settled[job])
        if settled:
            self.settled[job] += settled
        self.astray[job] += removed - min(more, self.astray[job])
        if self.astray[job]:
            self.ever_astray.add(job)
        else:
            del self.astray[job]

    def _apply(self, command: Command, step: _Step) -> None:
        name, *arguments = command
        if name in {b"LPUSH", b"RPUSH"}:
            self._push(name, arguments[0], arguments[1:], step)
        elif name in {b"RPOP", b"LPOP"}:
            self._pop(name, arguments[0], int(arguments[1]) if arguments[1:] else 1, step)
        elif name == b"LREM":
            self._remove(arguments[0], int(arguments[1]), arguments[2], step)
        elif name in {b"HSET", b"HMSET"} and arguments[0].startswith(_HASHES):
            self._hold(arguments[0], arguments[1:], step)
        elif name == _SETTLING and arguments[0] in self._hashes:
            self._settle(arguments[0], arguments[1:], step)
        elif name == b"ZADD" and arguments[0].startswith(_ZSETS):
            step.added.update(_jobs(arguments[1:]))
            step.requeued.update(_jobs(arguments[1:]))
        elif name == b"ZREM" and arguments[0].startswith(_ZSETS):
            step.removed.update(_jobs(arguments[1:]))
        elif name in {b"DEL", b"UNLINK"}:
            self._delete(arguments, step)

    def _push(self, name: bytes, key: bytes, texts: list[bytes], step: _Step) -> None:
        if key.startswith(_DEAD):
            self.dead.update(str(json.loads(text).get("job_id")) for text in texts)
            return
        line = self._lists.setdefault(key, deque())
        for text in texts:
            job = _job(text)
            (line.appendleft if name == b"LPUSH" else line.append)(job)
            if job is not None:
                step.added[job] += 1
                step.requeued.add(job)

    def _pop(self, name: bytes, key: bytes, count: int, step: _Step) -> None:
        line = self._lists.get(key, deque())
        for _ in range(min(count, len(line))):
            job = line.pop() if name == b"RPOP" else line.popleft()
            if job is not None:
                step.removed[job] += 1

    def _remove(self, key: bytes, count: int, text: bytes, step: _Step) -> None:
        line, job = self._lists.get(key, deque()), _job(text)
        for _ in range(min(abs(count) or len(line), line.count(job))):
            line.remove(job)
            if job is not None:
                step.removed[job] += 1

    def _hold(self, key: bytes, pairs: list[bytes], step: _Step) -> None:
        held = self._hashes.setdefault(key, {})
        for tag, text in zip(pairs[::2], pairs[1::2], strict=True):
            if tag in held:  # Overwritten: what it held before is gone.
                step.removed[held[tag]] += 1
            job = _job(text)
            if job is not None:
                held[tag] = job
                step.added[job] += 1

    def _settle(self, key: bytes, tags: list[bytes], step: _Step) -> None:
        for tag in tags:
            job = self._hashes[key].pop(tag, None)
            if job is not None:
                step.settled[job] += 1
                step.let_go.add(job)

    def _delete(self, names: list[bytes], step: _Step) -> None:
        for key in names:
            step.let_go.update(self._hashes.get(key, {}).values())
            gone = [*self._hashes.pop(key, {}).values(), *self._lists.pop(key, ())]
            step.removed.update(job for job in gone if job is not None)


def _jobs(texts: Iterable[bytes]) -> list[str]:
    """Return the jobs of zset members; scores and options have none."""
    return [job for job in map(_job, texts) if job is not None]


def _job(text: bytes) -> str | None:
    found = _ID.search(text)
    return found[1].decode() if found else None
