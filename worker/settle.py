"""Settles claimed messages in Redis: done, failed, given back, parked; and what follows from it.

Entries wait here until Redis has confirmed them, so an outage loses none.
Does not decide what becomes of an item (:mod:`worker.item_endings`).
"""

import json
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import redis

from tasks.errors import Failure
from worker import keys
from worker.claimed_item import ClaimedItem
from worker.dead_jobs import Attempt, DeadEnding, DeadJob
from worker.lease import Lease
from worker.logs import get_logger
from worker.redis_scripts import Command, Script, command, run

log = get_logger(__name__)

_MAX_ENTRIES_PER_CALL = 256


class Settler:
    """The outbox of a node; main thread only."""

    def __init__(self, lease: Lease, on_added: Callable[[], None]) -> None:
        self._lease = lease
        self._on_added = on_added
        self._entries: deque[dict[str, Any]] = deque()
        self.settled = 0
        self.refused = 0
        """Settlements that came too late: the lease had ended and the message was given to another."""

    def __len__(self) -> int:
        return len(self._entries)

    def tags(self) -> set[str]:
        """Return the tags of messages whose settlement waits here."""
        return {entry["tag"] for entry in self._entries if "tag" in entry}

    def add(self, entry: dict[str, Any]) -> None:
        """Queue one entry of ``scripts/settle.lua``, and have it flushed soon."""
        self._entries.append(entry)
        self._on_added()

    def flush(self, client: redis.Redis) -> None:
        """Send what waits; an entry leaves the outbox only after Redis has confirmed it.

        A reply that is lost after Redis has acted is harmless: the entry is
        sent again and refused, for its tag is gone. What Redis refuses to do
        (its memory is full, say) is kept too, for the next flush.

        Raises:
            redis.RedisError: Redis cannot be reached; everything unconfirmed is kept.
        """
        while self._entries:
            entries, arguments = self._next_call()
            try:
                reply = run(client, Script.SETTLE, *arguments)
            except redis.ResponseError as error:
                self.on_reply(error, entries)
                return
            self.on_reply(reply, entries)

    def next_command(self) -> tuple[int, Command] | None:
        """Return how many entries a call settles (for :meth:`on_reply`), and the call; None: none waits."""
        if not self._entries:
            return None
        entries, arguments = self._next_call()
        return entries, command(Script.SETTLE, *arguments)

    def on_reply(self, reply: Any, entries: int) -> set[str]:
        """Take the answer to the first entries; return the lists that they have pushed to."""
        if isinstance(reply, Exception):
            log.error("settlements_refused_by_redis", waiting=len(self._entries), error=str(reply))
            return set()
        has_parked = False
        for _ in range(entries):
            has_parked |= self._entries.popleft()["action"] == "park"
        settled, refused, *pushed_to = reply
        self.settled += int(settled)
        self.refused += int(refused)
        if has_parked:
            self._lease.renew_soon()
        return {name.decode() for name in pushed_to}

    def _next_call(self) -> tuple[int, tuple[list[str], str, int, int]]:
        """Return how many entries the next call settles, its keys and its arguments."""
        group = list(islice(self._entries, _MAX_ENTRIES_PER_CALL))
        names = [self._lease.inflight_key, keys.DELAYED, keys.DEAD]
        return len(group), (names, json.dumps(group), keys.MAX_DEAD_JOBS, keys.MAX_DEAD_BYTES)


def list_of(tag: str) -> str:
    """Return the list that a claimed message came from: the part of its tag after the second colon."""
    return tag.split(":", 2)[2]


def settlement(item: ClaimedItem, action: str) -> dict[str, Any]:
    """Return the part of a settlement that every action has."""
    entry: dict[str, Any] = {"tag": item.tag, "action": action}
    if item.place is not None:
        entry |= {"project": item.place.project, "stage": item.place.stage, "item": item.place.item}
    return entry


def failed_entry(
    item: ClaimedItem,
    kind: str,
    failure: Failure,
    ran: Attempt | None = None,
    ending: DeadEnding | None = None,
) -> dict[str, Any]:
    """Return the settlement of a failed job, with its report for the list of dead jobs.

    The message of a job without a project is kept beside it, for ``tiepoint
    retry``: an item of a project is planned anew, and Celery's workers refuse
    the id of a job that was revoked.
    """
    dead = DeadJob.of(item, kind, failure, ran, ending)
    keeps = bool(item.place is None and item.job_id and dead.ending is not DeadEnding.CANCELLED)
    return {**settlement(item, "failed"), "report": dead.to_text(), "keeps_message": keeps}
