"""Writes and reads queue messages exactly as kombu and Celery do.

Follow-up jobs are pushed by a script, not by a kombu producer, so their text
is made here; a contract test compares it with what Celery itself publishes.
Does not cover the estimate's meaning (:mod:`governor.model`).
"""

import base64
import json
import os
import re
import socket
import uuid
from collections.abc import Mapping
from typing import Any

from tasks.kind import Job
from worker import keys
from worker.contracts import NOTHING_SAID, SentContract, to_headers

MAX_NESTED_LEVELS = 64
"""Of a job's call: what is read here is written again, deeper in the stack, for a child."""
_ESCAPED_SURROGATE = re.compile(r"\\u[dD]")
_CONTENT_TYPE = "application/json"
_CALL_TYPES = (list, dict, dict | None)
"""Positional arguments, keyword arguments, the embedded canvas."""


class PayloadTooLargeError(ValueError):
    """A job's message is larger than the queue accepts."""


def to_message(job: Job, contract: SentContract = NOTHING_SAID) -> str:
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
            "content-type": _CONTENT_TYPE,
            "headers": _headers(job, job_id, contract),
            "properties": _properties(job, job_id, contract.priority),
        }
    )
    if len(text) > keys.MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            f"{job.kind} {job.item}: the message has {len(text)} bytes, 65536 are accepted"
        )
    return text


def _headers(job: Job, job_id: str, contract: SentContract) -> dict[str, Any]:
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
        **to_headers(contract),
    }
    if job.name:
        headers["name"] = job.name
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


def to_push(job: Job, contract: SentContract = NOTHING_SAID) -> dict[str, str]:
    """Return a job in the form that the scripts push: list, text and its place in the project."""
    return {
        "list": keys.queue_list(job.kind, contract.priority),
        "payload": to_message(job, contract),
        "project": job.project,
        "stage": job.stage,
        "item": job.item,
    }


def read_message(text: bytes) -> dict[str, Any]:
    """Parse a claimed message; ``headers`` and ``properties`` are objects.

    Raises:
        ValueError: it is not such a message.
    """
    message = _parsed(text.decode())
    parts = [message.get(name) for name in ("headers", "properties")] if isinstance(message, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("not a task message")
    return dict(message)


def read_call(message: Mapping[str, Any]) -> list[Any]:
    """Decode a message's body: positional arguments, keyword arguments, the embedded canvas.

    Plain JSON, unlike kombu's own decoding, which makes dates and the like of
    some objects: a child gets the arguments as JSON again.

    Raises:
        ValueError: it is not the JSON text of a call.
    """
    if message.get("content-type") != _CONTENT_TYPE:
        raise ValueError(f"the content type is {message.get('content-type')!r}, not {_CONTENT_TYPE}")
    if message["headers"].get("compression"):
        # A few bytes may unpack to more memory than the node has.
        raise ValueError("the body is compressed")
    call = _parsed(_body_text(message))
    if not isinstance(call, list) or len(call) != len(_CALL_TYPES):
        raise ValueError("the body is not a call: [positional arguments, keyword arguments, embedded]")
    if not all(isinstance(part, wanted) for part, wanted in zip(call, _CALL_TYPES, strict=True)):
        raise ValueError("the body is not a call: [[...], {...}, {...}]")
    if _is_nested_deeper(call, MAX_NESTED_LEVELS):
        raise ValueError(f"the body is nested deeper than {MAX_NESTED_LEVELS} levels")
    return call


def _body_text(message: Mapping[str, Any]) -> str:
    body, encoding = message.get("body"), message["properties"].get("body_encoding")
    if not isinstance(body, str):
        raise ValueError("the body is not text")  # noqa: TRY004 - one error type for all malformed messages
    if encoding == "base64":
        return base64.b64decode(body).decode()
    if encoding not in (None, "", "utf-8"):
        raise ValueError(f"the body encoding {encoding!r} is unknown")
    return body


def _parsed(text: str) -> Any:
    """Parse JSON from outside; every fault is a ValueError."""
    try:
        value = json.loads(text)
        if _ESCAPED_SURROGATE.search(text):
            # A lone surrogate can be escaped in JSON, but neither stored nor sent on.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _is_nested_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        if not layer:
            return False
        layer = [inner for outer in layer for inner in _containers_in(outer)]
    return bool(layer)


def _containers_in(value: Any) -> list[Any]:
    values = value.values() if isinstance(value, dict) else value
    return [inner for inner in values if isinstance(inner, dict | list)]
