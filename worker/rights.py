"""Holds which commands a user of Redis must be allowed, and finds out which of them it is not.

Each command is queued in a transaction that is then discarded: Redis checks
the rights of what it queues, and does nothing of it. What scripts call is
checked by Redis, too, with the rights of whoever runs them. Does not cover
which users there should be (``docs/operations.md``).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import redis
from redis.exceptions import NoPermissionError, ResponseError

from worker import keys

Probe = tuple[str | int, ...]
"""A command and arguments that Redis would accept."""

_HASH = keys.PROJECT_PREFIX + "doctor"
_SET = keys.stage_todo("doctor", "doctor")
_ZSET = keys.DELAYED
_LIST = keys.DEAD
_BINDING = "_kombu.binding.celery.pidbox"

CLIENT_PROBES: tuple[Probe, ...] = (
    ("BRPOP", "doctor.reply.celery.pidbox", 1),
    ("DEL", _HASH),
    ("EVALSHA", "0" * 40, 0),
    ("EXPIRE", _HASH, 1),
    ("GET", "unacked_mutex"),
    ("HDEL", _HASH, "field"),
    ("HEXISTS", _HASH, "field"),
    ("HGET", _HASH, "field"),
    ("HGETALL", _HASH),
    ("HINCRBY", _HASH, "field", 1),
    ("HLEN", _HASH),
    ("HMGET", _HASH, "field"),
    ("HSCAN", _HASH, 0),
    ("HSET", _HASH, "field", "value"),
    ("HSETNX", _HASH, "field", "value"),
    ("INFO", "server"),
    ("LINDEX", _LIST, 0),
    ("LLEN", _LIST),
    ("LPOS", _LIST, "value"),
    ("LPUSH", _LIST, "value"),
    ("LRANGE", _LIST, 0, 0),
    ("LREM", _LIST, 1, "value"),
    ("LSET", _LIST, 0, "value"),
    ("PING",),
    ("PUBLISH", "/0.celery.pidbox", "value"),
    ("RPUSH", _LIST, "value"),
    ("SADD", _SET, "value"),
    ("SADD", _BINDING, "value"),
    ("SCARD", _SET),
    ("SCRIPT", "EXISTS", "0" * 40),
    ("SCRIPT", "LOAD", "return 1"),
    ("SET", "unacked_mutex", "value"),
    ("SMEMBERS", _BINDING),
    ("SREM", _SET, "value"),
    ("TIME",),
    ("TYPE", _LIST),
    ("UNWATCH",),
    ("WATCH", "unacked"),
    ("ZADD", "_kombu.binding_deadlines", 1, "value"),
    ("ZCARD", _ZSET),
    ("ZMSCORE", _ZSET, "value"),
    ("ZRANGE", _ZSET, 0, 0),
    ("ZRANGEBYSCORE", _ZSET, 0, 0),
    ("ZREM", _ZSET, "value"),
    ("ZREVRANGE", _ZSET, 0, 0),
    ("ZREVRANGEBYSCORE", "unacked_index", 0, 0),
    ("ZSCAN", _ZSET, 0),
    ("ZSCORE", _ZSET, "value"),
)
"""What submitting, watching, cancelling, retrying and asking nodes takes; ours and Celery's."""

_WORKER_PROBES: tuple[Probe, ...] = (
    ("CLIENT", "ID"),
    ("CLIENT", "TRACKING", "OFF"),
    ("EXISTS", _HASH),
    ("HKEYS", _HASH),
    ("LTRIM", _LIST, 0, 0),
    ("PEXPIRE", _HASH, 1),
    ("PSUBSCRIBE", "/0.celery.pidbox"),
    ("PSUBSCRIBE", "/0.celeryev/worker.*"),
    ("PUBLISH", "/0.celeryev/worker.heartbeat", "value"),
    ("PUNSUBSCRIBE", "/0.celery.pidbox"),
    ("RPOP", _LIST),
    ("SUBSCRIBE", "__redis__:invalidate"),
    ("ZCOUNT", _ZSET, 0, 0),
)
WORKER_PROBES = (*CLIENT_PROBES, *_WORKER_PROBES)
"""What a worker needs: that, and what only claiming, settling and listening take."""


def lacking(client: redis.Redis, probes: Sequence[Probe], kinds: Sequence[str]) -> list[str]:
    """Return what the user of a connection may not do, such as "HSET tiepoint:dead"; empty: it may do all.

    Raises:
        redis.RedisError: Redis cannot be reached, or forbids transactions.
    """
    pool = client.connection_pool
    connection: Any = pool.get_connection()
    asked = list(_all(probes, kinds))
    try:
        # In one write: a worker asks whenever it connects, however far away the server is.
        connection.send_packed_command(connection.pack_commands([("MULTI",), *asked, ("DISCARD",)]))
        connection.read_response()
        forbidden = [_named(probe) for probe in asked if _is_forbidden(connection)]
    finally:
        # Not given back as it is: after an error it may still be in the transaction.
        connection.disconnect()
        pool.release(connection)
    return list(dict.fromkeys(forbidden))


def _is_forbidden(connection: Any) -> bool:
    try:
        connection.read_response()
    except NoPermissionError:
        return True
    except ResponseError:  # Its memory is full, say: no matter of rights.
        return False
    return False


def _named(probe: Probe) -> str:
    """Return a command and what it was to be done to; of two words where the second is a subcommand."""
    return " ".join(str(part) for part in probe[:2])


def _all(probes: Sequence[Probe], kinds: Sequence[str]) -> Iterator[Probe]:
    yield from probes
    for kind in kinds:
        for name in keys.queue_lists(kind):
            yield ("LLEN", name)
