"""Holds the stock Celery app of the reliability bench, set up as its documentation advises.

Acks late, a lost worker's job is sent again (``task_reject_on_worker_lost``),
nothing is prefetched beyond the processes, an outage of Redis is waited out,
results are kept, and stored again where that failed. What a case needs
besides comes from ``BENCH_STOCK`` (JSON, any of Celery's settings). Whatever
is not set here is Celery's default.
"""

import json
import os

from celery import Celery

from tests.bench.reliability_body import work
from tests.bench.reliability_events import drop_some_events

SETTINGS = "BENCH_STOCK"
_BROKER = os.environ.get("BENCH_BROKER_URL", "memory://")

app = Celery("stock")
app.conf.update(
    broker_url=_BROKER,
    result_backend="cache+memory://" if _BROKER == "memory://" else _BROKER,
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    result_backend_always_retry=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_send_task_events=True,
)
app.conf.update(json.loads(os.environ.get(SETTINGS, "{}")))
for _name in ("bench.one", "bench.four"):
    app.task(name=_name, shared=False)(work)
drop_some_events()
