"""What a worker says of how its queue is set up."""

import pytest
import redis

from worker import queue_at_start
from worker.queue_at_start import SetupWarnings


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def warning(self, _event: str, *, told: str, cure: str) -> None:  # noqa: ARG002 - as it is called
        """Keep a warning."""
        self.told.append(told)


def test_a_fault_of_the_setup_is_told_once_until_it_is_gone(
    server: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each connection it is looked at; a log is no place to say it each time."""
    log = Log()
    monkeypatch.setattr(queue_at_start, "log", log)
    warnings = SetupWarnings()
    for policy in ("noeviction", "allkeys-lru", "allkeys-lru", "noeviction", "allkeys-lru"):
        server.config_set("maxmemory-policy", policy)
        warnings.look(server)

    assert ["append-only" in told for told in log.told] == [True, False, False]
