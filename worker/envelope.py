"""Writes and reads queue messages exactly as kombu and Celery do.

Follow-up jobs are pushed by a script, not by a kombu producer, so their text
is made here; a contract test compares it with what Celery itself publishes.
Does not cover the estimate's meaning (:mod:`governor.model`).
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from tasks.kind import Job
from worker import keys


class PayloadTooLargeError(ValueError):
    """A job's message is larger than the queue accepts."""


def to_message(job: Job, *, priority: int = 6, message_class: str = "best_effort") -> str:
    """Return the text of a Celery task message (protocol 2, JSON, body as plain text).

    Raises:
        PayloadTooLargeError: the text exceeds 64 KiB.
    """
    job_id = str(uuid.uuid4())
    text = json.dumps(
        {
            "body": json.dumps(
                [[], dict(job.payload), dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))]
            ),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": _headers(job, job_id, message_class),
            "properties": _properties(job, job_id, priority),
        }
    )
    if len(text) > keys.MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            f"{job.kind} {job.item}: the message has {len(text)} bytes, 65536 are accepted"
        )
    return text


def _headers(job: Job, job_id: str, message_class: str) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "lang": "py",
        "task": job.kind,
        "id": job_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": job_id,
        "parent_id": None,
        "argsrepr": "()",
        "kwargsrepr": repr(dict(job.payload))[:256],
        "origin": f"tiepoint{os.getpid()}@{socket.gethostname()}",
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        "project": job.project,
        "stage": job.stage,
        "item": job.item,
        "class": message_class,
    }
    if job.estimate is not None:
        headers["estimate"] = job.estimate.to_header()
    return headers


def _properties(job: Job, job_id: str, priority: int) -> dict[str, Any]:
    return {
        "correlation_id": job_id,
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": job.kind},
        "priority": priority,
        "body_encoding": None,
        "delivery_tag": str(uuid.uuid4()),
    }


def to_push(job: Job, *, priority: int = 6) -> dict[str, str]:
    """Return a job in the form that the scripts push: list, text and its place in the project."""
    return {
        "list": keys.queue_list(job.kind, priority),
        "payload": to_message(job, priority=priority),
        "project": job.project,
        "stage": job.stage,
        "item": job.item,
    }


def read_message(text: bytes) -> dict[str, Any]:
    """Parse a claimed message.

    Raises:
        ValueError: it is not a JSON object with headers.
    """
    message = json.loads(text)
    if not isinstance(message, dict) or not isinstance(message.get("headers"), Mapping):
        raise ValueError("not a task message")  # noqa: TRY004 - one error type for all malformed messages
    return message
