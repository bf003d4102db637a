"""Holds remote commands: ``reset_factors``, and those of Celery's that would promise what is not done here.

The others (``revoke``, ``shutdown``, ``pool_grow``, ``add_consumer``, ...) stay Celery's own.
"""

import math
from typing import Any

from celery import Celery
from celery.worker.control import control_command

from worker.logs import get_logger
from worker.node import node_of

log = get_logger(__name__)

_LONGEST_QUOTE = 200
RESET_FACTORS = "reset_factors"


@control_command(
    name="time_limit",
    args=[("task_name", str), ("soft", float), ("hard", float)],
    signature="<kind> <soft_secs> [hard_secs]",
)
def time_limit(
    state: Any, task_name: str = "", hard: Any = None, soft: Any = None, **_: Any
) -> dict[str, str]:
    """Change how long one item of a kind may be at work on this node, from the next batch on."""
    task = state.app.tasks.get(task_name)
    if task is None:
        return {"error": "unknown task"}
    if not all(map(_is_limit, (hard, soft))):
        return {"error": "a time limit is a number of seconds above 0; leave it out for none"}
    task.soft_time_limit, task.time_limit = soft, hard
    log.info("time_limits_changed", kind=task_name, soft_seconds=soft, hard_seconds=hard)
    return {"ok": "time limits set successfully"}


@control_command(
    name="rate_limit",
    args=[("task_name", str), ("rate_limit", str)],
    signature="<kind> <rate_limit>",
)
def rate_limit(state: Any, task_name: str = "", **_: Any) -> dict[str, str]:  # noqa: ARG001 - Celery's signature
    """Refuse: a job starts when its node has room for it, at no rate."""
    kind = str(task_name)[:_LONGEST_QUOTE]
    return {"error": f"{kind} has no rate: a job starts when its node has room; give the node less by --cpus"}


@control_command(name=RESET_FACTORS, args=[("node", str)], signature="<node>")
def reset_factors(state: Any, node: str = "", **_: Any) -> dict[str, str]:
    """Let one node forget what it has learned of durations; the others say who they are."""
    name = node_of(state.app).settings.name
    if node != name:
        return {"node": name}
    state.consumer.puller.reset_factors()
    return {"node": name, "ok": "factors forgotten"}


def answers(
    broker_url: str, command: str, arguments: dict[str, Any], *, alive: int, timeout_seconds: float
) -> list[dict[str, Any]]:
    """Send all workers a remote command; return what they answer, ``alive`` answers end the waiting early.

    Raises:
        redis.RedisError, kombu.exceptions.OperationalError: the queue does not answer.
    """
    with Celery(broker=broker_url) as app:
        replies: Any = app.control.broadcast(
            command, arguments=arguments, reply=True, timeout=timeout_seconds, limit=alive
        )
    return [answer for reply in replies or [] for answer in reply.values() if isinstance(answer, dict)]


def _is_limit(seconds: Any) -> bool:
    if seconds is None:
        return True
    return type(seconds) in {int, float} and math.isfinite(seconds) and seconds > 0
