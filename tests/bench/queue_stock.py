"""Holds the stock Celery app that the queue bench compares with: prefork, Redis, acks late, JSON, no results.

Whatever is not set here is Celery's default (``worker_prefetch_multiplier`` 4, no task events).
"""

import os

from celery import Celery

from tests.bench.queue_body import do_nothing

QUEUE = "stock.noop"

app = Celery("stock", broker=os.environ.get("BENCH_BROKER_URL", "memory://"))
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue=QUEUE,
)
app.task(name=QUEUE, shared=False)(do_nothing)
