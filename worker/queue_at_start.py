"""Looks at a queue before a worker takes anything from it: whether it may, and what is safe there.

Does not cover what else may be wrong (:mod:`worker.doctor`).
"""

from collections.abc import Sequence
from contextlib import suppress

import redis
from redis.exceptions import NoPermissionError

from worker.connections import plain_client
from worker.findings import Finding, State
from worker.logs import get_logger
from worker.queue_checks import SETUP_CHECKS
from worker.redis_errors import cause_of, cure_of, is_lasting
from worker.rights import WORKER_PROBES, lacking
from worker.settings import Settings, WrongSettingError

log = get_logger(__name__)


def check_entry(settings: Settings) -> None:
    """Check that the queue lets a worker in; one that is not there yet is waited for later on.

    Raises:
        WrongSettingError: its password, its user or its certificate is wrong.
    """
    with plain_client(settings.redis_url) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            if is_lasting(error):
                raise WrongSettingError(
                    f"the queue does not let us in: {cause_of(error)}; {cure_of(error)}"
                ) from error


def check_rights(client: redis.Redis, kinds: Sequence[str]) -> None:
    """Check that a worker may do all it must: a script that is stopped half-way would lose what it holds.

    Raises:
        NoPermissionError: it may not; the text names what.
        redis.RedisError: Redis cannot be reached.
    """
    if forbidden := lacking(client, WORKER_PROBES, kinds):
        raise NoPermissionError(f"the user of the queue's URL may not: {', '.join(forbidden)}")


class SetupWarnings:
    """Logs where a server is not set up to keep what it is given: each fault once, until it is gone.

    Stops no worker. For one thread.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def look(self, client: redis.Redis) -> None:
        """Look, and log what is new.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        for check in SETUP_CHECKS:
            with suppress(redis.ResponseError):  # Not told here: some services forbid INFO.
                self._tell(check(client))

    def _tell(self, found: Finding) -> None:
        if found.state is State.OK:
            self._told.discard(found.name)
        elif found.name not in self._told:
            self._told.add(found.name)
            log.warning("queue_setup", told=found.told, cure=found.cure)
