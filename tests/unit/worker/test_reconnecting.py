"""A worker comes back to a queue that was away, soon and however long that took."""

from typing import Any

from worker.app import create_app
from worker.consumer import GovernedConsumer
from worker.settings import Settings


class Connection:
    """Notes how often it is to be tried."""

    def ensure_connection(
        self,
        errback: Any,  # noqa: ARG002 - Celery's call
        max_retries: int | None,
        *,
        callback: Any,  # noqa: ARG002
        **intervals: float,
    ) -> "Connection":
        """Be there at once."""
        self.max_retries, self.intervals = max_retries, intervals
        return self


def test_it_tries_every_two_seconds_for_ever() -> None:
    """Celery alone would wait longer and longer, up to half a minute."""
    consumer = object.__new__(GovernedConsumer)
    consumer.app = create_app(Settings())
    consumer.first_connection_attempt = True
    connection = Connection()

    consumer.ensure_connected(connection)

    assert connection.max_retries is None
    assert connection.intervals == {"interval_start": 2.0, "interval_step": 0, "interval_max": 2.0}


def test_a_reply_of_celerys_connections_is_not_waited_for_longer_than_of_ours() -> None:
    """A server that says nothing would hold up the worker; one that comes back is found again within 10 s."""
    options = create_app(Settings()).conf.broker_transport_options

    assert options["socket_timeout"] == options["socket_connect_timeout"] == 5.0
