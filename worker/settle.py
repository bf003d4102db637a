"""Settles claimed messages in Redis: done, failed, given back, parked; and what follows from it.

Entries wait here until Redis has confirmed them, so an outage loses none.
Does not decide what becomes of an item (:mod:`worker.running_batch`).
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
from worker.lease import Lease
from worker.logs import get_logger
from worker.redis_scripts import Script, run

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
            group = list(islice(self._entries, _MAX_ENTRIES_PER_CALL))
            try:
                settled, refused = self._send(client, group)
            except redis.ResponseError as error:
                log.error("settlements_refused_by_redis", waiting=len(self._entries), error=str(error))
                return
            for _ in group:
                self._entries.popleft()
            self.settled += settled
            self.refused += refused
            if any(entry["action"] == "park" for entry in group):
                self._lease.renew_soon()

    def _send(self, client: redis.Redis, group: list[dict[str, Any]]) -> tuple[int, int]:
        settled, refused = run(
            client,
            Script.SETTLE,
            [self._lease.inflight_key, keys.DELAYED, keys.DEAD],
            json.dumps(group),
            keys.MAX_DEAD_JOBS,
        )
        return int(settled), int(refused)


def settlement(item: ClaimedItem, action: str) -> dict[str, Any]:
    """Return the part of a settlement that every action has."""
    entry: dict[str, Any] = {"tag": item.tag, "action": action}
    if item.place is not None:
        entry |= {"project": item.place.project, "stage": item.place.stage, "item": item.place.item}
    return entry


def failed_entry(item: ClaimedItem, kind: str, failure: Failure) -> dict[str, Any]:
    """Return the settlement of a failed job, with its report for the list of dead jobs."""
    report = {"kind": kind, "job_id": item.job_id, "attempts": item.attempts, **failure.to_dict()}
    return {**settlement(item, "failed"), "report": json.dumps(report)}
