"""Holds a node's lease: renews it in a thread that no job and no claim can block.

Claimed messages belong to the lease. When it ends, any other node gives them
back to their lists. Only Redis TIME counts. Does not cover what is claimed,
nor what else a node does from time to time (:mod:`worker.caretaker`).
"""

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import redis

from worker import keys
from worker.caretaker import Caretaker
from worker.connections import SOCKET_TIMEOUT_SECONDS, plain_client
from worker.logs import get_logger
from worker.machine import Place
from worker.namesakes import Namesakes
from worker.redis_scripts import Script, run

log = get_logger(__name__)

_RENEW, _TAKE, _TAKE_ANYWAY = range(3)
"""Must be held already; not beside a live lease of the same name; in any case."""
_LOOK_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 4.0
"""Between renewals. Each looks for leases that have ended, so however long those are, the dead are noticed
within 5 s after."""
_TRIES_PER_LEASE = 5
"""A connection that swallows everything is noticed after a fifth of a lease: with the pauses that leaves two
more tries on new ones before the lease ends."""


class Lease:
    """The lease of one process start ("incarnation").

    ``ensure``, ``next_claim`` and ``release`` are called by the main thread, the renewals run
    in a daemon thread with a connection of its own.
    """

    def __init__(
        self,
        redis_url: str,
        node_name: str,
        seconds: float,
        describe: Callable[[], dict[Any, Any]],
        place: Place | None = None,
    ) -> None:
        """``place`` is the node's on its machine, which says what the lease is called."""
        self.incarnation = keys.new_incarnation(node_name) if place is None else place.partition.incarnation
        self.live_nodes = 1
        """How many nodes had a live lease at the last renewal, this one included; read by the main thread."""
        self.failed_renewals = 0
        self._url = redis_url
        self._name = node_name
        self._node_key = keys.node(node_name)
        self._milliseconds = int(seconds * 1000)
        self._caretaker = Caretaker(node_name, self._milliseconds, describe, place)
        self._given_back = 0
        self._server_ms_at_ns = (0, 0)
        """The server's time, and what our monotonic clock showed when we heard of it."""
        self._wake = threading.Event()
        self._is_ours = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._claims = count(1)

    @property
    def given_back(self) -> int:
        """Return how many messages of dead nodes this node has given back to their lists."""
        return self._given_back + self._caretaker.given_back

    def server_now_ms(self) -> int:
        """Return the server's time in milliseconds, as of the last renewal and counted on from there.

        It is behind by as long as the reply to that renewal took, never ahead.
        """
        server_ms, at_ns = self._server_ms_at_ns
        return server_ms + (time.monotonic_ns() - at_ns) // 1_000_000

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

        What dead workers of this machine held is given back first. Where a lease of the same name is still
        live then, this waits until it is clear whether its node is.

        Raises:
            NameTakenError: it is.
            redis.RedisError: Redis cannot be reached.
        """
        self._caretaker.bury(client)
        how = _TAKE_ANYWAY if self._is_ours else _TAKE
        while self._renew(client, how) is None:
            # Where none is left another may take the name now, as we do: one of us is refused.
            how = _TAKE_ANYWAY if self._outwait_namesakes(client) else _TAKE
        is_first, self._is_ours = not self._is_ours, True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._thread.start()
        if is_first:
            self._caretaker.tell(client)  # Who sees the lease looks for the node in the registry.
        self._caretaker.start(self._url)

    def _outwait_namesakes(self, client: redis.Redis) -> bool:
        """Return once no lease of our name can be a living node's; tells whether one is left of the dead."""
        namesakes = Namesakes(self._name)
        while True:
            seconds, microseconds = client.time()
            now_ms = seconds * 1000 + microseconds // 1000
            live = client.zrangebyscore(keys.LEASES, now_ms, "+inf", withscores=True)
            ends_ms = {
                lease.decode(): int(end_ms) for lease, end_ms in cast("list[tuple[bytes, float]]", live)
            }
            ours = {lease: end_ms for lease, end_ms in ends_ms.items() if lease.startswith(f"{self._name}|")}
            if namesakes.look(ours, now_ms):
                return bool(ours)
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
        given_back = int(run(client, Script.RELEASE, [keys.LEASES, self.inflight_key], self.incarnation, 0))
        self._caretaker.stop(client)
        return given_back

    def renew_soon(self) -> None:
        """Renew now: something was parked that may be due before the next renewal."""
        self._wake.set()

    def tell_soon(self) -> None:
        """Tell the registry now what the node is; any thread may call."""
        self._caretaker.tell_soon()

    def _keep(self) -> None:
        timeout_seconds = min(SOCKET_TIMEOUT_SECONDS, self._milliseconds / 1000 / _TRIES_PER_LEASE)
        client = plain_client(self._url, timeout_seconds)
        while not self._stopped:
            wait_seconds = self._renew_or_complain(client)
            self._wake.wait(wait_seconds)
            self._wake.clear()
        client.close()

    def _renew_or_complain(self, client: redis.Redis) -> float:
        """Renew once; returns the seconds to the next time."""
        pause_seconds = min(self._milliseconds / 3000, _LONGEST_PAUSE_SECONDS)
        try:
            next_due_ms = self._renew(client, _RENEW)
        except Exception as error:  # noqa: BLE001 - the top of this thread's loop: it must go on renewing
            self.failed_renewals += 1
            log.warning("lease_not_renewed", error=repr(error), failures=self.failed_renewals)
            return pause_seconds / 4
        if next_due_ms is None or next_due_ms < 0:
            return pause_seconds
        return min(pause_seconds, next_due_ms / 1000 + 0.002)

    def _renew(self, client: redis.Redis, how: int) -> int | None:
        """Renew, give back what dead nodes held, return what is due.

        Returns the ms to the next due message or -1; None where the name is another's.
        """
        owned, given_back, _due, next_due_ms, live_nodes, server_ms = run(
            client,
            Script.RENEW,
            [keys.LEASES, keys.TICK, keys.DELAYED, self._node_key],
            self.incarnation,
            self._milliseconds,
            how,
            keys.INFLIGHT_PREFIX,
        )
        if owned < 0:
            return None
        self._server_ms_at_ns = (int(server_ms), time.monotonic_ns())
        if given_back:
            self._given_back += given_back
            log.warning("dead_node_given_back", messages=given_back)
        if not owned and how == _RENEW:
            log.error("lease_had_ended", cause="a frozen process or a long outage", cure="taking a new one")
            return self._renew(client, _TAKE_ANYWAY)
        self.live_nodes = max(1, int(live_nodes))
        return int(next_due_ms)
