"""Reads the list of dead jobs, and takes jobs out of it that are tried again.

Does not cover the reports themselves (:mod:`worker.dead_jobs`), nor what it
means for a project (:mod:`worker.client`).
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import cast

import redis

from worker import keys
from worker.dead_jobs import DeadJob
from worker.redis_scripts import Script, run

_STRETCH = 500
"""Reports that one call looks at: it never holds up Redis for long."""


class PutBack(IntEnum):
    """What has become of a job that was to be put back."""

    WAITS_AGAIN = 1
    GONE = 0
    """Its report is no longer there: somebody else was faster."""
    NOT_KEPT = -1
    """Its message is not there; nothing was changed."""


def jobs(client: redis.Redis) -> Iterator[DeadJob]:
    """Yield the dead jobs, newest first, each once; what is no report is passed over.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    first, last_serial = 0, sys.maxsize
    while reports := cast("list[bytes]", client.lrange(keys.DEAD, first, first + _STRETCH - 1)):
        for job in _readable(reports):
            # Jobs that fail while this reads push those that were read into the next stretch.
            if job.serial is None or job.serial < last_serial:
                last_serial = job.serial or last_serial
                yield job
        first += _STRETCH


def _readable(reports: list[bytes]) -> Iterator[DeadJob]:
    for report in reports:
        with suppress(ValueError):
            yield DeadJob.from_text(report)


def put_back(client: redis.Redis, job: DeadJob) -> PutBack:
    """Put a job back into its list as it was sent, and drop its report.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    return PutBack(run(client, Script.RETRY_DEAD, [keys.DEAD], job.text))


def forget(client: redis.Redis, project_id: str, stage: str, item: str) -> int:
    """Drop the reports of an item, or of a whole project (stage and item empty); return how many.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    first, removed = 0, 0
    looked_at: int
    gone: int
    while True:
        looked_at, gone = run(
            client, Script.FORGET_DEAD, [keys.DEAD], project_id, stage, item, first, _STRETCH
        )
        removed += gone
        first += looked_at - gone
        if not looked_at:
            return removed
