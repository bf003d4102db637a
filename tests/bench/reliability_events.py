"""Loses a part of the events that a worker sends, and tells what a monitor believes for lack of them.

Does not cover who needs events (:mod:`tests.bench.reliability_outages`).
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from celery import Celery
from celery.events.dispatcher import EventDispatcher
from celery.events.state import State

LOST_PERCENT = "BENCH_LOST_EVENTS_PERCENT"
SEED = "BENCH_SEED"
_MOST_TASKS = 100_000


def drop_some_events() -> None:
    """Lose events in this process at random, where the environment says how many."""
    percent = float(os.environ.get(LOST_PERCENT, "0"))
    if not percent:
        return
    chance = random.Random(int(os.environ.get(SEED, "0")))
    send = EventDispatcher.send

    def send_or_not(self: EventDispatcher, *arguments: Any, **options: Any) -> Any:
        if chance.random() * 100 < percent:
            return None
        return send(self, *arguments, **options)

    EventDispatcher.send = send_or_not  # type: ignore[method-assign]  # that is the fault


@contextmanager
def listening(broker_url: str) -> Iterator[Callable[[], int]]:
    """Listen to events as monitors do; a function that tells how many jobs have succeeded, by these."""
    state: Any = State(max_tasks_in_memory=_MOST_TASKS)
    ready, stop = threading.Event(), threading.Event()

    def listen() -> None:
        with Celery(broker=broker_url, set_as_current=False) as app, app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": state.event})
            # It listens on a copy of the connection.
            with receiver.consumer_context(wakeup=False) as (listener, _, _):
                ready.set()
                while not stop.is_set():
                    with suppress(TimeoutError):
                        listener.drain_events(timeout=0.2)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield lambda: sum(task.state == "SUCCESS" for task in list(state.tasks.values()))
    finally:
        stop.set()
        thread.join(10)
