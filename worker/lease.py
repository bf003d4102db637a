"""Holds a node's lease: renews it in a thread that no job and no claim can block.

Claimed messages belong to the lease. When it ends, any other node gives them
back to their lists. Only Redis TIME counts. Does not cover what is claimed.
"""

import threading
import time
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import redis

from worker import keys
from worker.connections import plain_client
from worker.logs import get_logger
from worker.namesakes import Namesakes
from worker.redis_scripts import Script, run

log = get_logger(__name__)

_RENEW, _TAKE, _TAKE_ANYWAY = range(3)
"""Must be held already; not beside a live lease of the same name; in any case."""
_LOOK_SECONDS = 0.05


class Lease:
    """The lease of one process start ("incarnation").

    ``ensure``, ``next_claim`` and ``release`` are called by the main thread, the renewals run
    in a daemon thread with a connection of its own.
    """

    def __init__(
        self, redis_url: str, node_name: str, seconds: float, describe: Callable[[], dict[Any, Any]]
    ) -> None:
        self.incarnation = f"{node_name}|{uuid.uuid4().hex[:12]}"
        self.given_back = 0
        """Messages of dead nodes that this node has given back to their lists."""
        self.live_nodes = 1
        """How many nodes had a live lease at the last renewal, this one included; read by the main thread."""
        self.failed_renewals = 0
        self._url = redis_url
        self._name = node_name
        self._node_key = keys.node(node_name)
        self._milliseconds = int(seconds * 1000)
        self._describe = describe
        self._wake = threading.Event()
        self._is_ours = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._claims = count(1)

    @property
    def inflight_key(self) -> str:
        """Return the hash of what this incarnation holds."""
        return keys.inflight(self.incarnation)

    def next_claim(self) -> str:
        """Return the serial of the next claim, first part of its tags.

        Counted here, for the lease outlives a connection: a tag used twice
        would overwrite a message that is still held.
        """
        return f"{next(self._claims):012x}"

    def ensure(self, client: redis.Redis) -> None:
        """Take the lease (again), and keep it renewed from now on.

        Where a lease of the same name is still live, this waits until it is clear whether its node is.

        Raises:
            NameTakenError: it is.
            redis.RedisError: Redis cannot be reached.
        """
        if self._renew(client, _TAKE_ANYWAY if self._is_ours else _TAKE) is None:
            self._outwait_namesakes(client)
            self._renew(client, _TAKE_ANYWAY)
        self._is_ours = True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._thread.start()

    def _outwait_namesakes(self, client: redis.Redis) -> None:
        """Return once no lease of our name can be a living node's: after half a lease at most."""
        namesakes = Namesakes(self._name, self._milliseconds)
        while True:
            seconds, microseconds = client.time()
            now_ms = seconds * 1000 + microseconds // 1000
            live = client.zrangebyscore(keys.LEASES, now_ms, "+inf", withscores=True)
            ends_ms = {
                lease.decode(): int(end_ms) for lease, end_ms in cast("list[tuple[bytes, float]]", live)
            }
            ours = {lease: end_ms for lease, end_ms in ends_ms.items() if lease.startswith(f"{self._name}|")}
            if namesakes.look(ours, now_ms):
                return
            time.sleep(_LOOK_SECONDS)

    def release(self, client: redis.Redis) -> int:
        """End the lease; what it still holds goes back at once. Returns how many messages."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if not self._is_ours:
            return 0
        client.delete(self._node_key)
        return int(run(client, Script.RELEASE, [keys.LEASES, self.inflight_key], self.incarnation))

    def renew_soon(self) -> None:
        """Renew now: something was parked that may be due before the next renewal."""
        self._wake.set()

    def _keep(self) -> None:
        client = plain_client(self._url)
        while not self._stopped:
            wait_seconds = self._renew_or_complain(client)
            self._wake.wait(wait_seconds)
            self._wake.clear()
        client.close()

    def _renew_or_complain(self, client: redis.Redis) -> float:
        """Renew once; returns the seconds to the next time."""
        third_seconds = self._milliseconds / 3000
        try:
            next_due_ms = self._renew(client, _RENEW)
        except Exception as error:  # noqa: BLE001 - the top of this thread's loop: it must go on renewing
            self.failed_renewals += 1
            log.warning("lease_not_renewed", error=repr(error), failures=self.failed_renewals)
            return third_seconds / 4
        if next_due_ms is None or next_due_ms < 0:
            return third_seconds
        return min(third_seconds, next_due_ms / 1000 + 0.002)

    def _renew(self, client: redis.Redis, how: int) -> int | None:
        """Renew, give back what dead nodes held, return what is due.

        Returns the ms to the next due message or -1; None where the name is another's.
        """
        owned, given_back, _due, next_due_ms, live_nodes = run(
            client,
            Script.RENEW,
            [keys.LEASES, keys.TICK, keys.DELAYED],
            self.incarnation,
            self._milliseconds,
            how,
            keys.INFLIGHT_PREFIX,
        )
        if owned < 0:
            return None
        if given_back:
            self.given_back += given_back
            log.warning("dead_node_given_back", messages=given_back)
        if not owned and how == _RENEW:
            log.error("lease_had_ended", cause="a frozen process or a long outage", cure="taking a new one")
            return self._renew(client, _TAKE_ANYWAY)
        self.live_nodes = max(1, int(live_nodes))
        client.hset(self._node_key, mapping=self._describe())
        client.pexpire(self._node_key, self._milliseconds)
        return int(next_due_ms)
