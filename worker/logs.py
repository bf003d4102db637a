"""Holds how the worker logs: an event's name and its fields, through Celery's own handlers."""

from typing import Any, cast

import structlog
from celery.utils.log import get_logger as get_celery_logger


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose calls are ``log.warning("child_ended", pid=1, cause="...")``."""
    logger: Any = structlog.wrap_logger(
        get_celery_logger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", logger)
