"""Makes the messages of the queue bench: one that a stock client has sent, copied under new ids."""

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

    def copy(self) -> str:
        """Return the message as another job's."""
        job_id = str(uuid.uuid4())
        headers = {**self._fields["headers"], "id": job_id, "root_id": job_id}
        ids = {"correlation_id": job_id, "delivery_tag": str(uuid.uuid4())}
        properties = {**self._fields["properties"], **ids}
        return json.dumps({**self._fields, "headers": headers, "properties": properties})
