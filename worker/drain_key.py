"""Holds the drain in Redis as one node sees it: one large entry of all, and which node makes room for it.

Each call is one atomic script. Does not cover when to drain, nor what else
may run meanwhile (:mod:`worker.drain`).
"""

from dataclasses import dataclass
from enum import StrEnum

from worker import keys
from worker.claim import Head, head_of
from worker.lease import Lease
from worker.queue_view import QueueView
from worker.redis_scripts import Script

_KEPT_MS = 15_000
"""Three sweeps: a node that has stopped looking (it leaves, or hangs) lets another take over."""


class DrainState(StrEnum):
    """Whose the drain is."""

    FREE = "free"
    HELD = "held"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSight:
    """What a look has told: whose the drain is; our entry, or those that may be drained for."""

    state: DrainState
    entries: tuple[Head, ...] = ()


NOTHING = DrainSight(state=DrainState.FREE)


class DrainKey:
    """The drain, under one node's lease; main thread only."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def look(self, queues: QueueView, *, waited_ms: int, most_bytes: int, identity: str = "") -> DrainSight:
        """Keep the drain that is ours, or tell which entries have waited so long, the first of them first.

        With an ``identity`` the drain is taken for that entry, where it still
        waits and no living node drains. Entries of more than ``most_bytes``
        are left out.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        reply = queues.run_script(
            Script.DRAIN,
            [keys.LEASES, keys.DRAIN, *queues.large_sets()],
            self._lease.incarnation,
            waited_ms,
            most_bytes,
            _KEPT_MS,
            identity,
        )
        if reply is None:
            return NOTHING
        state, *told = reply
        return DrainSight(state=DrainState(state.decode()), entries=tuple(_entry(entry) for entry in told))

    def end(self, queues: QueueView) -> None:
        """End the drain, if it is ours.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        queues.run_script(Script.DRAIN_END, [keys.DRAIN], self._lease.incarnation)


def _entry(told: list[bytes]) -> Head:
    *fields, source = told
    kind = source.decode().removeprefix(keys.LARGE_PREFIX)
    return head_of(kind, source.decode(), True, fields, is_drained_for=True)
