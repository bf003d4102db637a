"""Does in a thread of its own, beside the renewals of a lease, what may take long: it must not hold those up.

Tells the registry what the node is (a driver may hang while it is asked), and
gives back at once what dead workers of this machine still hold (a lock folder
may hang). Does not renew anything (:mod:`worker.lease`).
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import redis

from worker import keys
from worker.connections import plain_client
from worker.logs import get_logger
from worker.machine import Place
from worker.predecessors import Predecessor, find_predecessors
from worker.redis_scripts import Script, run

log = get_logger(__name__)

_LONGEST_PAUSE_SECONDS = 5.0
_END_SECONDS = 5.0
"""How long an ending worker waits for this thread, which may hang."""


class Caretaker:
    """``tell`` and ``bury`` are called by the main thread when it takes the lease, else by our own thread."""

    def __init__(
        self, node_name: str, lease_ms: int, describe: Callable[[], Mapping[Any, Any]], place: Place | None
    ) -> None:
        """``place`` is the node's on its machine; without it nobody is looked for beside it."""
        self._node_key = keys.node(node_name)
        self._lease_ms = lease_ms
        self._describe = describe
        self._place = place
        self._wake = threading.Event()
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._last_errors: dict[str, str] = {}
        self.given_back = 0
        """Messages that dead workers of this machine held, given back to their lists."""

    def start(self, redis_url: str) -> None:
        """Do both again and again from now on; where that is done already, do them now."""
        self._wake.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._keep, args=(redis_url,), name="caretaker", daemon=True
            )
            self._thread.start()

    def tell_soon(self) -> None:
        """Do both now: the node is no longer what it was; any thread may call."""
        self._wake.set()

    def stop(self, client: redis.Redis) -> None:
        """End the thread, and take the node out of the registry.

        Raises:
            redis.RedisError: Redis cannot be reached; the entry expires.
        """
        self._is_ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        client.delete(self._node_key)

    def tell(self, client: redis.Redis) -> None:
        """Write the node's entry; it lasts for one lease, and every renewal prolongs it.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        entry = self._describe()
        if not self._is_ending:  # It may have taken until now, when the entry is gone already.
            run(client, Script.REGISTER, [self._node_key], self._lease_ms, *chain(*entry.items()))

    def bury(self, client: redis.Redis) -> None:
        """Give back what dead workers of this machine hold; each counts as a lost node.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        for dead in self._predecessors():
            names = [keys.LEASES, keys.inflight(dead.incarnation)]
            given_back = int(run(client, Script.RELEASE, names, dead.incarnation, 1))
            dead.forget()
            if given_back:
                self.given_back += given_back
                log.warning("dead_neighbour_given_back", incarnation=dead.incarnation, messages=given_back)

    def _predecessors(self) -> list[Predecessor]:
        try:
            return [] if self._place is None else find_predecessors(self._place)
        except OSError as error:
            self._complain("lock_folder_not_read", error)
            return []  # Their leases end by themselves.

    def _keep(self, redis_url: str) -> None:
        client = plain_client(redis_url)
        while not self._is_ending:
            self._wake.wait(min(self._lease_ms / 3000, _LONGEST_PAUSE_SECONDS))
            self._wake.clear()
            self._attempt("registry_not_told", partial(self.tell, client))
            self._attempt("dead_neighbours_not_given_back", partial(self.bury, client))
        client.close()

    def _attempt(self, failure: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the top of this thread's loop: it fails open, and is tried again
            self._complain(failure, error)

    def _complain(self, what: str, error: Exception) -> None:
        """Log an error, once as long as it stays the same."""
        if self._last_errors.get(what) != repr(error):
            self._last_errors[what] = repr(error)
            log.warning(what, error=repr(error))
