"""What a worker says of how its queue is set up."""

from pathlib import Path

import pytest
import redis

from worker import queue_at_start
from worker.queue_at_start import SetupWarnings, check_entry
from worker.settings import Settings


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


def test_a_server_that_is_not_there_yet_is_no_reason_not_to_start(tmp_path: Path) -> None:
    """The worker will wait for it; nothing of its URL is wrong."""
    check_entry(Settings(broker_url=f"redis+socket://{tmp_path}/not-yet.sock"))
