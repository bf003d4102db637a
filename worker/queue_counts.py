"""Reads how many jobs are where, in one step: in the queues, held by nodes, dead, and what has left for good.

Of sizes only, never of messages. Does not cover which jobs these are
(:mod:`worker.project_queue`), nor the counters of projects
(:mod:`worker.project_state`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import redis

from worker import keys
from worker.redis_scripts import Script, run


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Where all jobs are that were ever sent to a server; each is counted once."""

    waiting: Mapping[str, int]
    """In the lists of a kind."""
    large: Mapping[str, int]
    """Set aside for a bigger node, by kind."""
    delayed: int
    claimed: int
    """Held by nodes: running, or about to; also what a dead node held until its lease has ended."""
    dead: int
    """With a report in the list of dead jobs."""
    done: int
    not_ready: int
    """Left, for an input was missing; planned anew."""
    dropped: int
    """Of projects that were cancelled."""
    forgotten: int
    """Failed, but their reports have made room for others, or their project was started again."""
    failed: int
    """All that have failed; those that were put back since are counted there as well."""
    retried: int
    """Put back from the list of dead jobs."""
    pushed: int
    """Sent by scripts: the jobs of projects."""

    @property
    def open(self) -> int:
        """Return how many are still to be done."""
        return sum(self.waiting.values()) + sum(self.large.values()) + self.delayed + self.claimed

    @property
    def over(self) -> int:
        """Return how many are not."""
        return self.dead + self.done + self.not_ready + self.dropped + self.forgotten

    @property
    def total(self) -> int:
        """Return all there are and were: clients have sent ``total - pushed``, or one is lost or doubled."""
        return self.open + self.over


def count_jobs(client: redis.Redis, kinds: Iterable[str]) -> QueueCounts:
    """Count the jobs of these kinds, and whatever no list shows of all kinds, at one moment.

    The sum is right where ``kinds`` are all that messages were sent to.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    kinds = list(kinds)
    lists = [name for kind in kinds for name in keys.queue_lists(kind)]
    names = [keys.LEASES, keys.DELAYED, keys.DEAD, keys.TOTALS, *lists, *map(keys.large, kinds)]
    claimed, delayed, dead, fields, sizes = run(client, Script.COUNT_JOBS, names, keys.INFLIGHT_PREFIX)
    size_of = dict(zip(names[4:], sizes, strict=True))
    totals = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
    left = {
        name: totals.get(name.encode(), 0)
        for name in ("done", "not_ready", "dropped", "forgotten", "failed", "retried", "pushed")
    }
    return QueueCounts(
        waiting={kind: sum(size_of[name] for name in keys.queue_lists(kind)) for kind in kinds},
        large={kind: size_of[keys.large(kind)] for kind in kinds},
        delayed=delayed,
        claimed=claimed,
        dead=dead,
        **left,
    )
