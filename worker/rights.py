"""Holds which commands a user of Redis must be allowed, and finds out which of them it is not.

Each command is queued in a transaction that is then discarded: Redis checks
the rights of what it queues, and does nothing of it. Does not cover which
users there should be (``docs/operations.md``).
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

SCRIPT_PROBES: tuple[Probe, ...] = (
    ("DEL", _HASH),
    ("EXPIRE", _HASH, 1),
    ("GET", keys.TICK),
    ("HDEL", _HASH, "field"),
    ("HGET", _HASH, "field"),
    ("HGETALL", _HASH),
    ("HINCRBY", _HASH, "field", 1),
    ("HMGET", _HASH, "field"),
    ("HSET", _HASH, "field", "value"),
    ("HSETNX", _HASH, "field", "value"),
    ("LINDEX", _LIST, 0),
    ("LLEN", _LIST),
    ("LPUSH", _LIST, "value"),
    ("LRANGE", _LIST, 0, 0),
    ("LREM", _LIST, 1, "value"),
    ("LSET", _LIST, 0, "value"),
    ("LTRIM", _LIST, 0, 0),
    ("PEXPIRE", _HASH, 1),
    ("RPOP", _LIST),
    ("RPUSH", _LIST, "value"),
    ("SADD", _SET, "value"),
    ("SCARD", _SET),
    ("SET", keys.TICK, "value"),
    ("SREM", _SET, "value"),
    ("TIME",),
    ("ZADD", _ZSET, 1, "value"),
    ("ZCARD", _ZSET),
    ("ZCOUNT", _ZSET, 0, 0),
    ("ZRANGE", _ZSET, 0, 0),
    ("ZRANGEBYSCORE", _ZSET, 0, 0),
    ("ZREM", _ZSET, "value"),
    ("ZREVRANGEBYSCORE", _ZSET, 0, 0),
    ("ZSCAN", _ZSET, 0),
    ("ZSCORE", _ZSET, "value"),
)
"""What the scripts call: Redis checks that, too, with the rights of whoever runs them."""

_OWN_PROBES: tuple[Probe, ...] = (
    ("EVALSHA", "0" * 40, 0),
    ("SCRIPT", "LOAD", "return 1"),
    ("EXISTS", _HASH),
    ("HKEYS", _HASH),
    ("HSCAN", _HASH, 0),
    ("INFO", "server"),
    ("PING",),
    ("ZMSCORE", _ZSET, "value"),
    ("ZREVRANGE", _ZSET, 0, 0),
    ("CLIENT", "ID"),
    ("CLIENT", "TRACKING", "OFF"),
)
"""What our own connections send."""

_CELERY_PROBES: tuple[Probe, ...] = (
    ("BRPOP", _LIST, 1),
    ("PUBLISH", "/0.celery.pidbox", "value"),
    ("SMEMBERS", "_kombu.binding.celery.pidbox"),
    ("SADD", "_kombu.binding.celery.pidbox", "value"),
    ("SUBSCRIBE", "/0.celery.pidbox"),
    ("PSUBSCRIBE", "/0.celeryev/*"),
)
"""What Celery's connections send, beside commands from above."""


def probes(kinds: Sequence[str]) -> Iterator[Probe]:
    """Yield every command that a worker, a client and a monitor send together."""
    yield from SCRIPT_PROBES
    yield from _OWN_PROBES
    yield from _CELERY_PROBES
    for kind in kinds:
        for name in keys.queue_lists(kind):
            yield ("LLEN", name)


def lacking(client: redis.Redis, kinds: Sequence[str]) -> list[str]:
    """Return what the user of a connection may not do, such as "HSET tiepoint:dead"; empty: it may do all.

    Raises:
        redis.RedisError: Redis cannot be reached, or forbids transactions.
    """
    pool = client.connection_pool
    connection: Any = pool.get_connection()
    try:
        _ask(connection, ("MULTI",))
        forbidden = [_named(probe) for probe in probes(kinds) if _is_forbidden(connection, probe)]
        _ask(connection, ("DISCARD",))
    finally:
        # Not given back: after an error it may still be in the transaction.
        connection.disconnect()
        pool.release(connection)
    return list(dict.fromkeys(forbidden))


def _ask(connection: Any, command: Probe) -> None:
    connection.send_command(*command)
    connection.read_response()


def _is_forbidden(connection: Any, probe: Probe) -> bool:
    try:
        _ask(connection, probe)
    except NoPermissionError:
        return True
    except ResponseError:  # Its memory is full, say: no matter of rights.
        return False
    return False


def _named(probe: Probe) -> str:
    """Return a command and what it was to be done to; of two words where the second is a subcommand."""
    return " ".join(str(part) for part in probe[:2])
