"""Makes the messages of the queue bench: one that a stock client has sent, copied under new ids."""

import base64
import json
import uuid
from typing import Any

import redis
from celery import Celery


class Template:
    """The message of one job of one queue, as Celery itself has written it."""

    def __init__(self, broker_url: str, server: "redis.Redis", queue: str, **arguments: Any) -> None:
        aside = f"template:{queue}"
        with Celery(broker=broker_url, set_as_current=False) as client:
            client.send_task(queue, kwargs=arguments, queue=aside, ignore_result=True)
        text = server.rpop(aside)
        if not isinstance(text, bytes):
            raise TypeError(f"no message of {queue} has arrived")
        self._fields = json.loads(text)
        self._fields["properties"]["delivery_info"]["routing_key"] = queue

    def copy(self, **arguments: Any) -> str:
        """Return the message as another job's, with other arguments where some are given."""
        job_id = str(uuid.uuid4())
        headers = {**self._fields["headers"], "id": job_id, "root_id": job_id}
        ids = {"correlation_id": job_id, "delivery_tag": str(uuid.uuid4())}
        properties = {**self._fields["properties"], **ids}
        body = {"body": _encoded(arguments)} if arguments else {}
        return json.dumps({**self._fields, **body, "headers": headers, "properties": properties})


def _encoded(arguments: dict[str, Any]) -> str:
    """Return the body of a call with these arguments, as a stock client encodes it."""
    embedded = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    return base64.b64encode(json.dumps([[], arguments, embedded]).encode()).decode()
