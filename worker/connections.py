"""Opens the Redis connections of a node's main process.

Two sorts: plain clients, and one *tracked* client whose reads arm a one-shot
wake-up: Redis tells a subscriber connection when a key that was read changes
(client-side caching, default mode). So nothing has to poll an empty queue.
Does not cover Celery's own connections.
"""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import BlockingConnectionPool
from redis.retry import Retry

INVALIDATIONS = "__redis__:invalidate"
SOCKET_TIMEOUT_SECONDS = 5.0


def _options() -> dict[str, Any]:
    # No silent retries: a claim that was repeated would pop twice. REDIRECT needs RESP2.
    return {
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "socket_timeout": SOCKET_TIMEOUT_SECONDS,
        "socket_connect_timeout": SOCKET_TIMEOUT_SECONDS,
        "health_check_interval": 0,
    }


def plain_client(redis_url: str) -> redis.Redis:
    """Return a client for everything but peeking and claiming."""
    return redis.Redis.from_url(redis_url, **_options())


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
        # A pool of one connection: a pipeline of a "single connection client"
        # would silently take another, untracked one.
        self._pool = BlockingConnectionPool.from_url(
            redis_url,
            max_connections=1,
            timeout=SOCKET_TIMEOUT_SECONDS,
            redis_connect_func=self._track,
            **_options(),
        )
        self.client = redis.Redis(connection_pool=self._pool)

    def _track(self, connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", self._subscriber_id, "NOLOOP")
        connection.read_response()

    def fileno(self) -> int:
        """Return the subscriber's socket; it is readable when a tracked key changed."""
        return int(self._subscriber._get_socket().fileno())  # noqa: SLF001 - contract test holds it

    def drain(self) -> None:
        """Read all waiting invalidations; which keys they name does not matter, the caller looks anew."""
        while self._subscriber.can_read(timeout=0):
            self._subscriber.read_response()

    def close(self) -> None:
        """Close both connections."""
        self._subscriber.disconnect()
        self._pool.disconnect()
