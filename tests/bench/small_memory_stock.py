"""Holds the stock Celery app of the small-memory bench: our callback for SIFT as a plain task on prefork.

Acks late and a result backend, as a careful user sets them up; whatever is not
set here is Celery's default. So a job whose process was killed has failed
(``task_reject_on_worker_lost`` would send it around for ever).
"""

import os
from pathlib import Path
from typing import Any

from celery import Celery

from governor.model import Grant
from tasks.features import KINDS, FeaturePayload
from tasks.kind import Done
from tasks.store import Store

QUEUE = "features.extract.sift"
_CALLBACK = next(kind.run for kind in KINDS if kind.name == QUEUE)
_UNBOUND = Grant(batch=1, cpu_threads=1, memory_bytes=2**64 - 1, io_slots=1)
"""Nobody has reserved anything."""

app = Celery("stock", set_as_current=False)
app.conf.update(
    broker_url=os.environ.get("BENCH_BROKER_URL", "memory://"),
    result_backend=os.environ.get("BENCH_BROKER_URL", "cache+memory://"),
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_acks_late=True,
    task_default_queue=QUEUE,
)


@app.task(name=QUEUE, shared=False)  # Or it were a task of every app of the process.
def extract(**arguments: Any) -> None:
    """Find the features of one photo and publish them.

    Raises:
        TypeError: the callback answers anything but Done.
    """
    store = Store(Path(os.environ["BENCH_STORE"]))
    (outcome,) = _CALLBACK([FeaturePayload.model_validate(arguments)], _UNBOUND, store)
    if not isinstance(outcome, Done):
        raise TypeError(f"the callback answers {outcome}")
