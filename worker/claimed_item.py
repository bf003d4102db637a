"""Holds one claimed message as the node sees it: its tag, its history, its arguments, its Celery request.

A message may come from anybody. Whatever is not as it must be is a ValueError
here, so that nothing that is computed from an item later can fail over it.
Does not decide what becomes of it (:mod:`worker.item_endings`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery.worker import state
from kombu.transport import virtual

from governor.model import Estimate
from tasks.errors import Failure
from tasks.kind import Kind
from tasks.store.keys import is_name
from worker.claim import Claimed
from worker.contracts import NOTHING_SAID, SentContract, read_contract
from worker.deaths import LastEnd
from worker.envelope import read_call, read_message
from worker.estimates import admitted_estimate
from worker.frames import Place
from worker.time_limits import is_header

_LONGEST_ARGUMENTS = 256
_LONGEST_CAUSE = 1000
"""What events carry of a text, in characters; monitors keep thousands of jobs in memory."""


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


class TaskMessage(virtual.Message):
    """kombu's message with its body decoded already, once and as plain JSON."""

    def __init__(self, fields: Mapping[str, Any], call: list[Any], channel: LeaseChannel) -> None:
        super().__init__(fields, channel=channel)  # type: ignore[arg-type]  # quacks as needed
        self._call = call

    def decode(self) -> list[Any]:
        """Return positional arguments, keyword arguments and the embedded canvas."""
        return self._call


@dataclass(slots=True, kw_only=True)
class ClaimedItem:
    """One claimed message; ``request`` is Celery's, None until Celery has received it."""

    tag: str
    job_id: str
    task: str
    place: Place | None
    message: Any = None
    """The :class:`TaskMessage` for Celery; None where it could not be read: such an item is only settled."""
    arguments: list[Any] = field(default_factory=list)
    """The positional ones."""
    payload: dict[str, Any] = field(default_factory=dict)
    """The keyword arguments."""
    attempts: int = 0
    """How many attempts at it have ended without a result."""
    lost: int = 0
    """How many nodes have died over it."""
    lost_on: str | None = None
    """The last of them, where that is known."""
    last_end: LastEnd | None = None
    """How its last attempt without a result ended."""
    estimate_text: str = ""
    """Its own estimate; empty = its kind's default."""
    has_moved_estimate: bool = False
    """A node wrote that, not its sender."""
    eta: str | None = None
    contract: SentContract = NOTHING_SAID
    """Who comes first, and until when it is of use."""
    request: Any = None

    @property
    def name(self) -> str:
        """Return what messages call this item."""
        return self.place.told_as if self.place else self.job_id

    def estimate(self, kind: Kind) -> Estimate:
        """Return what one batch of items like this is admitted with."""
        admitted = admitted_estimate(kind, self.estimate_text, is_moved=self.has_moved_estimate)
        return kind.estimate if admitted is None else admitted

    @property
    def is_cancelled(self) -> bool:
        """Tell whether Celery has revoked or expired the job: we have not settled it, it was acknowledged."""
        return bool(self.request.acknowledged)

    def announce_failure(self, failure: Failure) -> None:
        """Send Celery's event of a failed job, and end Celery's bookkeeping."""
        if self.request is not None:
            self.request.acknowledged = True
            state.task_ready(self.request)
            text = _beginning(f"{failure.reason}: {failure.cause}", _LONGEST_CAUSE)
            self.request.send_event("task-failed", exception=text, traceback="")

    def announce_drop(self) -> None:
        """Send Celery's event of a job that nobody wants done any more, and end Celery's bookkeeping."""
        self.request.acknowledged = True
        state.task_ready(self.request)
        self.request.send_event("task-revoked", terminated=False, signum=None, expired=True)

    def announce_return(self, why: str) -> None:
        """Send Celery's event of a job that will be tried again, and end Celery's bookkeeping.

        ``task-rejected`` would be the word for it, but monitors do not let it follow ``task-started``:
        such a job would be shown as running for as long as it waits.
        """
        self.request.acknowledged = True
        state.task_ready(self.request)
        self.request.send_event("task-retried", exception=_beginning(why, _LONGEST_CAUSE), traceback="")


def read_item(claimed: Claimed, channel: LeaseChannel) -> ClaimedItem:
    """Parse a claimed message.

    Raises:
        ValueError: it is not a task message, or a part of it is not of its type.
    """
    fields = read_message(claimed.payload)
    call = read_call(fields)
    headers, properties = fields["headers"], fields["properties"]
    history = fields.pop("tiepoint", {})
    if not isinstance(history, dict):
        raise ValueError("the message's history is no object")  # noqa: TRY004 - one error type for all malformed messages
    _check_optional(history, "estimate", dict)
    _check_optional(history, "lost_on", str)
    moved = history.get("estimate")
    _check_optional(headers, "shadow", str)
    _check_optional(headers, "eta", str)
    _check_optional(properties, "delivery_info", dict)
    if not is_header(headers.get("timelimit")):
        raise ValueError("timelimit is not [hard seconds, soft seconds]")
    properties["delivery_tag"] = claimed.tag
    for name in ("argsrepr", "kwargsrepr"):
        headers[name] = _beginning(str(headers.get(name) or ""), _LONGEST_ARGUMENTS)
    return ClaimedItem(
        tag=claimed.tag,
        job_id=_required_text(headers, "id"),
        task=_required_text(headers, "task"),
        place=_place(headers),
        eta=headers.pop("eta", None),
        message=TaskMessage(fields, call, channel),
        arguments=call[0],
        payload=call[1],
        attempts=_count(history, "attempts"),
        lost=_count(history, "lost"),
        lost_on=history.get("lost_on"),
        last_end=_last_end(history),
        estimate_text=json.dumps(moved) if moved else str(headers.get("estimate") or ""),
        has_moved_estimate=bool(moved),
        contract=read_contract(headers),
    )


def unread_item(claimed: Claimed) -> ClaimedItem:
    """Return what can be told of a message that cannot be run: its tag, at most also its names."""
    try:
        headers = read_message(claimed.payload)["headers"]
    except ValueError:
        headers = {}
    job_id, task = (str(headers.get(name) or "") for name in ("id", "task"))
    return ClaimedItem(tag=claimed.tag, job_id=job_id, task=task, place=_place(headers))


def _beginning(text: str, longest: int) -> str:
    """Return a text as it is, or its beginning where it is longer than that."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _required_text(headers: Mapping[str, Any], name: str) -> str:
    if not headers.get(name):
        raise ValueError(f"the message has no {name}")
    _check_optional(headers, name, str)
    return str(headers[name])


def _check_optional(fields: Mapping[str, Any], name: str, wanted: type) -> None:
    value = fields.get(name)
    if value is not None and not isinstance(value, wanted):
        raise ValueError(f"{name} is {type(value).__name__}, not {wanted.__name__}")


def _count(history: Mapping[str, Any], name: str) -> int:
    value = history.get(name, 0)
    if type(value) is not int or value < 0:
        raise ValueError(f"the history's {name} is not a count")
    return value


def _last_end(history: Mapping[str, Any]) -> LastEnd | None:
    _check_optional(history, "last_end", dict)
    remembered = history.get("last_end")
    return LastEnd.from_history(remembered) if remembered else None


def _place(headers: Mapping[str, Any]) -> Place | None:
    parts = [headers.get(name) for name in ("project", "stage", "item")]
    if not all(isinstance(part, str) for part in parts):
        return None
    project, stage, item = (str(part) for part in parts)
    # Headers come from outside: what cannot be a project in the store is none.
    if not is_name(project):
        return None
    name = headers.get("name")
    return Place(project=project, stage=stage, item=item, name=name if isinstance(name, str) else "")
