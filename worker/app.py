"""Holds the Celery app of a governed worker; importing it connects to nothing.

Started by ``tiepoint worker`` (:mod:`worker.start`) or plain ``celery -A
worker.app worker``. Does not cover how jobs are pulled (:mod:`worker.consumer`).
"""

import sys
from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from tasks.catalog import load_kinds
from tasks.kind import Kind
from worker.connections import SOCKET_TIMEOUT_SECONDS
from worker.consumer import GovernedConsumer, PullStep
from worker.place import PlaceStep
from worker.queue_url import tls_options
from worker.settings import PREFIX, Settings, WrongSettingError
from worker.time_limits import of_kind


def create_app(settings: Settings) -> Celery:
    """Return an app with one task and one queue per job kind."""
    app = Celery("tiepoint", broker=settings.broker_url)
    kinds = load_kinds(settings.kind_modules)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_queues=[Queue(name, Exchange(name), routing_key=name) for name in kinds],
        task_send_sent_event=False,
        worker_pool="worker.pool:GovernedPool",
        worker_consumer=f"{GovernedConsumer.__module__}:{GovernedConsumer.__name__}",
        worker_send_task_events=True,
        # A rate-limited request would leave its batch and run without a reservation.
        worker_disable_rate_limits=True,
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=True,
        broker_connection_retry_on_startup=True,
        broker_use_ssl=tls_options(settings.broker_url),
        # An outage over a night must not end a worker.
        broker_connection_max_retries=None,
        # A worker that connects while Redis has no memory left, or forbids something, tries again, too.
        broker_channel_error_retry=True,
        # Of 30 s without a network, the first claim must come within 10 s of its end.
        broker_transport_options={
            "socket_timeout": SOCKET_TIMEOUT_SECONDS,
            "socket_connect_timeout": SOCKET_TIMEOUT_SECONDS,
            "health_check_interval": 10,
        },
        tiepoint_settings=settings,
    )
    _check_time_limits(settings, kinds)
    for name, kind in kinds.items():
        task: Any = app.task(name=name, bind=False, shared=False)(_make_body(name))
        limit = of_kind(kind, settings.time_limits)
        # Where Celery has them: `celery control time_limit` changes them there.
        task.soft_time_limit, task.time_limit = limit.soft_seconds, limit.hard_seconds
    app.steps["worker"].add(PlaceStep)
    app.steps["consumer"].add(PullStep)
    return app


def _check_time_limits(settings: Settings, kinds: Mapping[str, Kind]) -> None:
    unknown = sorted(settings.time_limits.keys() - kinds.keys())
    if unknown:
        raise WrongSettingError(f"{PREFIX}TIME_LIMITS: there is no kind {', '.join(unknown)}")


def _make_body(name: str) -> Any:
    def run_in_a_governed_worker(**_payload: Any) -> None:
        raise RuntimeError(f"{name} runs only in a governed worker, under a reservation")

    return run_in_a_governed_worker


def _app_or_exit() -> Celery:
    """Read the settings; plain ``celery -A`` has nobody else to say in one sentence what is wrong."""
    try:
        return create_app(Settings.checked())
    except WrongSettingError as error:
        sys.exit(f"error: {error}")


app = _app_or_exit()
