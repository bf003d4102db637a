"""Holds one claimed message as the node sees it: its tag, its history, its Celery request.

Does not decide what becomes of it (:mod:`worker.running_batch`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from celery.worker import state
from kombu.transport import virtual

from tasks.errors import Failure
from tasks.store.keys import is_name
from worker.claim import Claimed
from worker.envelope import read_message
from worker.frames import Place


class LeaseChannel:
    """What a kombu message needs of a channel; settling under the lease is our own affair.

    Celery rejects at once what it cannot run (unknown task, invalid message).
    What it discards (revoked, expired) it acknowledges through its event loop,
    later than we need it; the request's ``acknowledged`` tells that at once.
    """

    no_ack_consumers = None
    decode_body = virtual.Channel.decode_body
    codecs = virtual.Channel.codecs

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        self._on_refused = on_refused

    def basic_ack(self, tag: str, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's signature
        """Do nothing: see the class."""

    def basic_reject(self, tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002 - kombu's signature
        """Settle a message that Celery cannot run."""
        self._on_refused(tag)


@dataclass(slots=True, kw_only=True)
class ClaimedItem:
    """One claimed message; ``request`` is Celery's, None until Celery has received it."""

    tag: str
    message: virtual.Message
    attempts: int
    """How many children have died over it."""
    lost: int
    """How many nodes have died over it."""
    place: Place | None
    eta: str | None
    job_id: str
    request: Any = None

    @property
    def payload(self) -> dict[str, Any]:
        """Return the job's keyword arguments."""
        return dict(self.request.kwargs or {})

    @property
    def task(self) -> str:
        """Return the task's name."""
        return str(self.message.headers.get("task"))

    @property
    def name(self) -> str:
        """Return what messages call this item."""
        return self.place.item if self.place else self.job_id

    @property
    def is_cancelled(self) -> bool:
        """Tell whether Celery has revoked or expired the job: we have not settled it, it was acknowledged."""
        return bool(self.request.acknowledged)

    def announce_failure(self, failure: Failure) -> None:
        """Send Celery's event of a failed job, and end Celery's bookkeeping."""
        if self.request is not None:
            self.request.acknowledged = True
            state.task_ready(self.request)
            text = f"{failure.reason}: {failure.cause}"
            self.request.send_event("task-failed", exception=text, traceback="")

    def announce_return(self) -> None:
        """Send Celery's event of a job that goes back to its queue, and end Celery's bookkeeping."""
        self.request.acknowledged = True
        state.task_ready(self.request)
        self.request.send_event("task-rejected", requeue=True)


def read_item(claimed: Claimed, channel: LeaseChannel) -> ClaimedItem:
    """Parse a claimed message.

    Raises:
        ValueError: it is not a task message.
    """
    fields = read_message(claimed.payload)
    history = fields.pop("tiepoint", {})
    headers = fields["headers"]
    eta = headers.pop("eta", None)
    message = virtual.Message(fields, channel=channel)  # type: ignore[arg-type]  # quacks as needed
    message.delivery_tag = claimed.tag
    return ClaimedItem(
        tag=claimed.tag,
        message=message,
        attempts=int(history.get("attempts", 0)),
        lost=int(history.get("lost", 0)),
        place=_place(headers),
        eta=eta,
        job_id=str(headers.get("id")),
    )


def _place(headers: Mapping[str, Any]) -> Place | None:
    parts = [headers.get(name) for name in ("project", "stage", "item")]
    if not all(isinstance(part, str) for part in parts):
        return None
    project, stage, item = (str(part) for part in parts)
    # Headers come from outside: what cannot be a project in the store is none.
    return Place(project=project, stage=stage, item=item) if is_name(project) else None
