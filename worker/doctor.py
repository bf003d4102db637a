"""Runs all checks of a queue and of this machine; none can make it hang.

Does not cover what is checked (:mod:`worker.queue_checks`,
:mod:`worker.machine_checks`) nor how it is shown (:mod:`worker.doctor_command`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TypeVar

import redis

from tasks.catalog import load_kinds
from tasks.errors import StoreError
from worker import machine_checks, queue_checks
from worker.connections import plain_client
from worker.findings import Finding, problem
from worker.planning import NodePlanning
from worker.profile_file import ProfileFileError
from worker.project_queue import ProjectQueue, QueueError
from worker.queue_checks import Queue
from worker.redis_errors import cause_of, cure_of
from worker.settings import Settings

Result = TypeVar("Result")

PATIENCE_SECONDS = 15.0
"""For one check; longer than the timeouts of the queue's connections."""


def examine(settings: Settings, *, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Finding]:
    """Yield what each check finds; those of the queue only where one is named."""
    if "broker_url" in settings.model_fields_set:
        yield from _examine_queue(settings, patience_seconds)
    for check in machine_checks.CHECKS:
        yield _found(check.__name__, partial(check, settings), patience_seconds)


def _examine_queue(settings: Settings, patience_seconds: float) -> Iterator[Finding]:
    projects = ProjectQueue(settings.redis_url)
    with plain_client(settings.redis_url) as client, closing(projects):
        first = _reached(client)
        if first is not None:
            yield first
            return
        queue = Queue(
            client=client,
            projects=projects,
            kinds=load_kinds(settings.kind_modules),
            store_id=_within(patience_seconds, partial(_store_id, settings)),
            planning=_planning(settings),
        )
        for check in (*queue_checks.SERVER_CHECKS, *queue_checks.CONTENT_CHECKS):
            yield _found(check.__name__, partial(check, queue), patience_seconds)


def _reached(client: redis.Redis) -> Finding | None:
    """Return why the server cannot be asked anything; None where it answers."""
    try:
        client.ping()
    except redis.exceptions.NoPermissionError:
        return None  # It answers; what else is forbidden is told together.
    except redis.RedisError as error:
        return problem("server", f"the queue does not answer: {cause_of(error)}", cure_of(error))
    return None


def _store_id(settings: Settings) -> str | None:
    """Return the identity of the store that is named and there."""
    if "store" not in settings.model_fields_set or not settings.store.is_dir():
        return None
    try:
        return machine_checks.identity_if_any(settings.store)
    except StoreError:
        return None


def _planning(settings: Settings) -> NodePlanning | None:
    """Return how this machine plans; a check of the machine tells of profiles that cannot be read."""
    try:
        return NodePlanning.of(settings.planning)
    except ProfileFileError:
        return None


def _found(check_name: str, check: Callable[[], Finding], patience_seconds: float) -> Finding:
    """Return what a check finds; that it does not answer, or may not look, is a finding, too."""
    name = check_name.removeprefix("check_").replace("_", " ")
    try:
        found = _within(patience_seconds, check)
    except (redis.RedisError, QueueError) as error:
        cause = error.__cause__ if isinstance(error, QueueError) and error.__cause__ else error
        return problem(name, f"cannot be checked: {cause_of(cause)}", cure_of(cause))
    if found is None:
        return problem(
            name,
            f"no answer within {patience_seconds:g} s",
            "look for a share, a disk or a network that hangs",
        )
    return found


def _within(seconds: float, ask: Callable[[], Result]) -> Result | None:
    """Return what a function returns, or None where it takes too long: then its thread is left behind."""
    results: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(ask())
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else None
