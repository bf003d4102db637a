"""Puts the puller into Celery: a consumer whose tasks come from reserved claims, not from BRPOP.

Celery keeps its own parts: events, remote control, revocation, reconnecting,
shutdown. Does not cover pulling itself (:mod:`worker.puller`).
"""

import sys
import time
import warnings
from functools import partial
from typing import Any, NoReturn

import kombu
from celery import bootsteps
from celery.exceptions import CPendingDeprecationWarning, WorkerShutdown
from celery.worker.consumer import Consumer

from worker.control_commands import rate_limit, time_limit  # noqa: F401 - registered by the import
from worker.logs import get_logger
from worker.namesakes import NameTakenError
from worker.node import node_of
from worker.node_report import report
from worker.puller import Puller
from worker.redis_errors import cause_of, cure_of, is_refusal
from worker.shutdown import Patience
from worker.trace_command import COMMAND  # noqa: F401 - importing it registers the command

log = get_logger(__name__)

_NOT_REPORTED = {"store", "store_id", "import_roots", "planning"}
"""Of a node's entry in the registry: its folders are nobody's business but its projects'."""

_EXIT_USAGE = 2
_RECONNECT_SECONDS = 2.0
_NO_AUTOSCALE = (
    "--autoscale is not for a governed worker: Celery would add children for jobs that it has taken in "
    "advance, and here none is; leave it out, the governor starts what the machine has room for"
)


class GovernedConsumer(Consumer):
    """Celery's consumer; requests born inside a claim are collected, not submitted.

    The default strategy captures ``on_task_request``, so received events,
    revoked and expired tasks, unknown tasks and decode errors stay stock.
    """

    puller: Puller
    task_consumer: Any

    def __init__(self, on_task_request: Any, **options: Any) -> None:  # noqa: ARG002 - the stock way to the pool
        self._collected: list[Any] = []
        super().__init__(self._collected.append, **options)

    def receive(self, message: Any) -> list[Any]:
        """Pass one message through Celery's reception; return the requests born of it (none or one)."""
        self._collected.clear()
        self.task_consumer._receive_callback(message)  # noqa: SLF001 - kombu's entry, held by a contract test
        born = list(self._collected)
        self._collected.clear()
        return born

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long it takes; a node is back within seconds of a server that was away for long.

        Celery would wait 2 s longer after each failure, up to 30 s.
        """
        conn.ensure_connection = partial(
            conn.ensure_connection,
            interval_start=_RECONNECT_SECONDS,
            interval_step=0,
            interval_max=_RECONNECT_SECONDS,
        )
        return super().ensure_connected(conn)

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Say what the server refuses to a worker that connects, and let it try again after a moment."""
        _outwait(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Prepare to reconnect; running batches go on, and their settlements wait."""
        with warnings.catch_warnings():
            # Celery announces here that version 6 will cancel running tasks by default; we have
            # decided that (worker_cancel_long_running_tasks_on_connection_loss).
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)
        if is_refusal(exc):
            _outwait(exc)


def _outwait(refusal: Exception) -> None:
    log.error("queue_refuses", error=cause_of(refusal), cure=cure_of(refusal))
    time.sleep(_RECONNECT_SECONDS)


class QueueConsumer(kombu.Consumer):
    """Stands in for Celery's task consumer: the same calls, but nothing is popped from a queue.

    So ``active_queues``, ``add_consumer`` and ``cancel_consumer`` (and
    Flower's buttons) work unchanged.
    """

    puller: Puller
    _queues: dict[str, Any]

    def consume(self, no_ack: bool | None = None) -> None:  # noqa: ARG002, FBT001 - kombu's signature
        """Pull from the selected queues."""
        self.puller.consume([queue.name for queue in self.queues])

    def cancel(self) -> None:
        """Pull from no queue."""
        self.puller.consume([])

    close = cancel

    def cancel_by_queue(self, queue: Any) -> None:
        """Pull from one queue less."""
        self._queues.pop(_queue_name(queue), None)
        self.consume()

    def consuming_from(self, queue: Any) -> bool:
        """Tell whether a queue is pulled from."""
        return self.puller.consumes(_queue_name(queue))

    def qos(self, *_: Any, **__: Any) -> None:
        """Ignore prefetch counts: nothing is prefetched."""


def _queue_name(queue: Any) -> str:
    return str(getattr(queue, "name", queue))


def _refuse_to_start(why: str) -> NoReturn:
    sys.stderr.write(f"error: {why}\n")
    raise WorkerShutdown(_EXIT_USAGE)


class PullStep(bootsteps.StartStopStep):
    """Replaces the consumer that Celery's ``Tasks`` step has built, before it consumes anything."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._node = node_of(consumer.app)
        self._puller = Puller(self._node, consumer.pool, consumer.receive)
        consumer.puller = self._puller
        self._patience = Patience()

    def start(self, consumer: Any) -> None:
        """Connect, and put our consumer in place; a worker whose name is another's ends with a sentence."""
        if consumer.controller.autoscale:
            _refuse_to_start(_NO_AUTOSCALE)
        self._patience.listen()  # Celery has set its handlers by now.
        stock = consumer.task_consumer
        ours = QueueConsumer(
            consumer.connection,
            queues=list(consumer.app.amqp.queues.consume_from.values()),
            accept=stock.accept,
            on_decode_error=consumer.on_decode_error,
            auto_declare=False,
        )
        ours.puller = self._puller
        consumer.task_consumer = ours
        try:
            self._puller.connect()
        except NameTakenError as error:
            _refuse_to_start(str(error))

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Listen in Celery's event loop."""
        self._puller.register(hub)

    def stop(self, consumer: Any) -> None:
        """Claim nothing more; where the worker is to end, others need not wait for it."""
        self._puller.stop()
        if consumer.blueprint.state != bootsteps.RUN:  # type: ignore[attr-defined]  # missing in the stubs
            self._puller.leave()

    def shutdown(self, _consumer: Any) -> None:
        """Settle, and give the rest back."""
        self._puller.shutdown()

    def info(self, _consumer: Any) -> dict[str, Any]:  # type: ignore[override]  # the stubs say None
        """Return the governor's state for ``inspect stats``."""
        described = self._puller.describe()
        details = {
            **{name: told for name, told in described.items() if name not in _NOT_REPORTED},
            "live_nodes": self._puller.lease.live_nodes,
            "counters": self._puller.counters(),
        }
        planning = self._puller.describe_planning()
        if planning is not None:
            details["planning"] = planning
        return report(self._node.governor, described["waits_for"], details)
