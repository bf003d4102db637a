"""Opens the Redis connections of a node's main process.

Two sorts: plain clients, and one *tracked* client whose reads arm a one-shot
wake-up: Redis tells a subscriber connection when a key that was read changes
(client-side caching, default mode). So nothing has to poll an empty queue.
Does not cover Celery's own connections.
"""

from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import BlockingConnectionPool
from redis.exceptions import ResponseError
from redis.retry import Retry

from worker.redis_scripts import Command

INVALIDATIONS = "__redis__:invalidate"
SOCKET_TIMEOUT_SECONDS = 5.0


def _options(timeout_seconds: float = SOCKET_TIMEOUT_SECONDS) -> dict[str, Any]:
    # No silent retries: a claim that was repeated would pop twice. REDIRECT needs RESP2.
    return {
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": 0,
    }


def plain_client(redis_url: str, timeout_seconds: float = SOCKET_TIMEOUT_SECONDS) -> redis.Redis:
    """Return a client for everything but peeking and claiming; it waits that long for a reply."""
    return redis.Redis.from_url(redis_url, **_options(timeout_seconds))


class TrackedClient:
    """One command connection, and the subscriber that its invalidations go to.

    For the main thread only. When the command connection reconnects it turns
    tracking on again by itself; whatever was armed before is armed anew by
    the next look, which the sweep makes within seconds.
    """

    def __init__(self, redis_url: str) -> None:
        self._subscriber_pool = BlockingConnectionPool.from_url(redis_url, max_connections=1, **_options())
        self._subscriber: Any = self._subscriber_pool.get_connection()  # type: ignore[no-untyped-call]
        # Asked before subscribing: in RESP2 a subscribed connection may not ask.
        self._subscriber.send_command("CLIENT", "ID")
        self._subscriber_id = int(self._subscriber.read_response())
        self._subscriber.send_command("SUBSCRIBE", INVALIDATIONS)
        self._subscriber.read_response()
        # One connection that is never given back: a client's pool might take another, untracked one.
        self._pool = BlockingConnectionPool.from_url(
            redis_url, max_connections=1, redis_connect_func=self._track, **_options()
        )
        self._connection: Any = self._pool.get_connection()  # type: ignore[no-untyped-call]

    def _track(self, connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", self._subscriber_id, "NOLOOP")
        connection.read_response()

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write, and return their replies; what Redis refuses is an error among them.

        redis-py's pipeline would do; it took a fifth of the main process's time for a small job.

        Raises:
            redis.RedisError: Redis cannot be reached; which of the commands were done is not known.
        """
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            return [self._reply() for _ in commands]
        except BaseException:
            # Replies that nobody has read would be taken for those to the next commands.
            self._connection.disconnect()
            raise

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def fileno(self) -> int:
        """Return the subscriber's socket; it is readable when a tracked key changed."""
        return int(self._subscriber._get_socket().fileno())  # noqa: SLF001 - contract test holds it

    def drain(self) -> set[str] | None:
        """Read all waiting invalidations; return the keys that have changed, None where any may have."""
        names: set[str] = set()
        is_complete = True
        while self._subscriber.can_read(timeout=0):
            changed = self._subscriber.read_response()[2]
            if changed is None:  # The whole database was flushed.
                is_complete = False
            else:
                names.update(name.decode() for name in changed)
        return names if is_complete else None

    def close(self) -> None:
        """Close both connections."""
        self._subscriber.disconnect()
        self._connection.disconnect()
