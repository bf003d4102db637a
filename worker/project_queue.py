"""Starts, watches and stops projects on a queue: the client's side of Redis.

Does not cover the store (:mod:`worker.submission`) nor the command line.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import redis
from kombu.exceptions import OperationalError

from governor.planning.contract import Contract
from tasks.catalog import STAGES
from tasks.expand import PLAN_STAGE, ExpandPayload, expand_job
from worker import dead_list, keys
from worker.connections import plain_client
from worker.contracts import NOTHING_SAID, SentContract
from worker.dead_jobs import DeadJob
from worker.dead_list import PutBack
from worker.envelope import to_push
from worker.live_nodes import LiveNode, read_node
from worker.project_state import ProjectState, read_state
from worker.queue_counts import QueueCounts, count_jobs
from worker.redis_errors import cause_of, cure_of, is_refusal
from worker.redis_scripts import Script, run

_STRETCH = 500
"""Messages that one call looks at: a cancellation never holds up Redis for long."""


_FIRST_LARGE = 50
"""Of a large set the most and the least charged are looked at: what needs a GPU may be charged nothing."""


_UNACKED = "unacked"


class QueueError(Exception):
    """The queue did not answer, or not as it should; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A message that waits in a list, or was put aside from there."""

    list: str
    payload: bytes
    entry: bytes = b""
    """As its zset has it; empty for a message of a list."""
    score: float = 0
    """Of a large entry the bytes it was charged; of a delayed one when it is due."""
    since_ms: int | None = None
    """Since when it has waited aside, in server milliseconds; None where that is not known."""
    is_head: bool = False

    @property
    def kind(self) -> str:
        """Return the kind of its list."""
        return keys.kind_of_list(self.list)


class ProjectQueue:
    """Talks to one queue; every method but ``close`` raises QueueError where it does not answer."""

    def __init__(self, redis_url: str) -> None:
        self._redis = plain_client(redis_url)

    def start(self, project_id: str, *, until: str, contract: Contract | None = None) -> bool:
        """Start or resume a project whose store is ready; one that runs looks again at its end (False).

        With a contract all its jobs have it; they count as captured now.
        """
        first_job = expand_job(ExpandPayload.model_validate({"project": project_id, "until": until}))
        first = to_push(first_job, self._sent_now(contract))
        with queue_errors():
            started = run(
                self._redis,
                Script.START_PROJECT,
                [keys.project(project_id)],
                json.dumps(first),
                json.dumps([PLAN_STAGE, *STAGES]),
                "until",
                until,
            )
        return bool(started)

    def _sent_now(self, contract: Contract | None) -> SentContract:
        if contract is None:
            return NOTHING_SAID
        with queue_errors():
            return SentContract(contract=contract, captured_at_ms=_server_ms(self._redis))

    def check_room(self) -> None:
        """Check that the queue takes something new, before anything is changed for what it would refuse.

        Raises:
            QueueError: its memory is full.
        """
        with queue_errors():  # Whatever may take memory is refused; XX: this takes none, and changes nothing.
            self._redis.zadd(keys.LEASES, {"": 0}, xx=True)

    def state(self, project_id: str) -> ProjectState:
        """Read a project's live state."""
        with queue_errors():
            return read_state(_texts(self._redis.hgetall(keys.project(project_id))))

    def until(self, project_id: str) -> str | None:
        """Return the last phase that a project was started for; None where the queue does not know it."""
        with queue_errors():
            value = self._redis.hget(keys.project(project_id), "until")
        return _text(value) if value else None

    def waits_for(self, node_name: str) -> str:
        """Return what a node waits for, in its own words; empty while it works."""
        with queue_errors():
            value = self._redis.hget(keys.node(node_name), "waits_for")
        return _text(value) if value else ""

    def nodes(self) -> list[LiveNode]:
        """Return the nodes whose lease lives, sorted by name."""
        with queue_errors():
            now_ms = _server_ms(self._redis)
            live = cast("list[bytes]", self._redis.zrangebyscore(keys.LEASES, now_ms, "+inf"))
            leases = [_text(lease) for lease in live]
            names = sorted({lease.rpartition("|")[0] for lease in leases})
            entries = [(name, _texts(self._redis.hgetall(keys.node(name)))) for name in names]
        return [read_node(name, fields) for name, fields in entries if fields]

    # -- Cancelling ---------------------------------------------------------------------

    def cancel(self, project_id: str, kinds: list[str]) -> tuple[str, int]:
        """Cancel a running project and take its waiting messages out of the queues.

        Returns the state it was in and the number of messages removed; in any
        other state than ``running`` (or ``cancelled``: finish what another
        call began) nothing is changed. What runs goes on, see :meth:`running`.
        """
        with queue_errors():
            before = _text(run(self._redis, Script.CANCEL_PROJECT, [keys.project(project_id)]))
            if before not in {"running", "cancelled"}:
                return before, 0
            # In the direction in which messages move, so that none is missed: delayed ones come back
            # to their lists, heads are set aside from there.
            removed = self._cancel_in_set(keys.DELAYED, project_id)
            for kind in kinds:
                removed += sum(self._cancel_in_list(name, project_id) for name in keys.queue_lists(kind))
                removed += self._cancel_in_set(keys.large(kind), project_id)
        return before, removed

    def _cancel_in_list(self, name: str, project_id: str) -> int:
        first, removed = 0, 0
        looked_at: int
        gone: int
        while True:
            looked_at, gone = run(self._redis, Script.CANCEL_LIST, [name], project_id, first, _STRETCH)
            removed += gone
            first += looked_at - gone
            if not looked_at:
                return removed

    def _cancel_in_set(self, name: str, project_id: str) -> int:
        cursor, removed = b"0", 0
        gone: int
        while True:
            cursor, gone = run(self._redis, Script.CANCEL_SET, [name], project_id, cursor, _STRETCH)
            removed += gone
            if cursor == b"0":
                return removed

    def running(self, project_id: str) -> dict[str, str]:
        """Return the node of each job of a project that a node holds, by job id."""
        with queue_errors():
            return {
                str(headers["id"]): node
                for node, payload in self.held()
                if (headers := headers_of(payload)).get("project") == project_id and headers.get("id")
            }

    def held(self) -> Iterator[tuple[str, bytes]]:
        """Yield the node and the text of every message that is claimed and not settled."""
        for lease in cast("list[bytes]", self._redis.zrange(keys.LEASES, 0, -1)):
            incarnation = _text(lease)
            for _, payload in self._redis.hscan_iter(keys.inflight(incarnation), count=_STRETCH):
                yield incarnation.rpartition("|")[0], payload

    # -- Waiting jobs -------------------------------------------------------------------

    def waiting_in(self, name: str) -> Iterator[bytes]:
        """Yield the messages of a list, the next in line first."""
        end = -1
        while stretch := cast("list[bytes]", self._redis.lrange(name, end - _STRETCH + 1, end)):
            yield from reversed(stretch)
            end -= _STRETCH

    def length(self, name: str) -> int:
        """Return how many messages a list holds."""
        return int(self._redis.llen(name))

    def first_waiting(self, kinds: Sequence[str]) -> list[Parked]:
        """Return the heads of the kinds' lists, and the entries at both ends of their large sets."""
        lists = [name for kind in kinds for name in keys.queue_lists(kind)]
        with queue_errors():
            asking = self._redis.pipeline(transaction=False)
            for name in lists:
                asking.lindex(name, -1)
            for kind in kinds:
                asking.zrevrange(keys.large(kind), 0, _FIRST_LARGE - 1, withscores=True)
                asking.zrange(keys.large(kind), 0, _FIRST_LARGE - 1, withscores=True)
            replies = asking.execute()
        heads = zip(lists, replies, strict=False)
        of_kinds = zip(kinds, replies[len(lists) :: 2], replies[len(lists) + 1 :: 2], strict=True)
        return [
            *(Parked(list=name, payload=payload, is_head=True) for name, payload in heads if payload),
            *(entry for kind, most, least in of_kinds for entry in self._parked(kind, dict(most + least))),
        ]

    def _parked(self, kind: str, charges: Mapping[bytes, float]) -> list[Parked]:
        """Return entries of a kind's large set, and since when each waits."""
        if not charges:
            return []
        with queue_errors():
            entries: list[Any] = list(charges)  # The stubs know text only.
            since_ms = self._redis.zmscore(keys.large_since(kind), entries)
        return [
            read_parked(entry, charged_bytes, since)
            for (entry, charged_bytes), since in zip(charges.items(), since_ms, strict=True)
        ]

    def since_ms(self, kind: str, entry: bytes) -> int | None:
        """Return since when an entry of a kind's large set waits, in server milliseconds; None: not known."""
        with queue_errors():
            since = self._redis.zscore(keys.large_since(kind), entry)
        return None if since is None else int(since)

    def parked_in(self, name: str) -> Iterator[Parked]:
        """Yield the messages of a zset (the delayed ones, a large set)."""
        for entry, score in self._redis.zscan_iter(name, count=_STRETCH):
            yield read_parked(entry, score)

    # -- Failed jobs --------------------------------------------------------------------

    def dead(self) -> Iterator[DeadJob]:
        """Yield the failed jobs, newest first; what is no report is passed over."""
        with queue_errors():
            yield from dead_list.jobs(self._redis)

    def put_back(self, job: DeadJob) -> PutBack:
        """Put a failed job without a project back into its list, as it was sent."""
        with queue_errors():
            return dead_list.put_back(self._redis, job)

    def forget_dead(self, project_id: str, stage: str = "", item: str = "") -> int:
        """Drop the reports of a project that is started again, or of one item; return how many."""
        with queue_errors():
            return dead_list.forget(self._redis, project_id, stage, item)

    # -- What is in the queue ------------------------------------------------------------

    def counts(self, kinds: Sequence[str]) -> QueueCounts:
        """Return how many jobs of these kinds are where, at one moment."""
        with queue_errors():
            return count_jobs(self._redis, kinds)

    def drained_by(self) -> str | None:
        """Return the node that makes room for a large job; None where none does."""
        with queue_errors():
            holder = self._redis.hget(keys.DRAIN, "holder")
        return _text(holder).rpartition("|")[0] if holder else None

    def unacked(self) -> int:
        """Return how many messages stock workers have popped and not finished (kombu's own hash)."""
        with queue_errors():
            return int(self._redis.hlen(_UNACKED))

    def server_ms(self) -> int:
        """Return the server's time in milliseconds."""
        with queue_errors():
            return _server_ms(self._redis)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def read_parked(entry: bytes, score: float, since_ms: float | None = None) -> Parked:
    """Return an entry of the delayed messages or of a large set: list, a zero byte, text."""
    name, _, payload = entry.partition(b"\0")
    return Parked(
        list=_text(name),
        payload=payload,
        entry=entry,
        score=score,
        since_ms=None if since_ms is None else int(since_ms),
    )


@contextmanager
def queue_errors() -> Iterator[None]:
    """Turn whatever Redis, or Celery on its way there, raises into :class:`QueueError`."""
    try:
        yield
    except (redis.RedisError, OperationalError) as error:
        what = "the queue refuses: " if is_refusal(error) else "the queue does not answer: "
        raise QueueError(f"{what}{cause_of(error)}; {cure_of(error)}") from error


def headers_of(payload: bytes) -> dict[str, Any]:
    """Return a message's headers; none where it cannot be read."""
    try:
        headers = json.loads(payload)["headers"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return headers if isinstance(headers, dict) else {}


def _server_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return seconds * 1000 + microseconds // 1000


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _texts(stored: Any) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in stored.items()}
