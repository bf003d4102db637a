"""Holds the report of a job that has failed for good, as the list of dead jobs keeps it. Pure.

The one place that makes such reports, and the one that reads them. Does not
decide what fails (:mod:`worker.item_endings`), nor keep reports
(``scripts/settle.lua``).
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from governor.wording import in_binary_units
from tasks.errors import Failure, Reason
from worker.claimed_item import ClaimedItem
from worker.deaths import Ending, LastEnd
from worker.frames import Place


class DeadEnding(StrEnum):
    """What a job has died of, for whoever sorts the list of dead jobs."""

    ERROR = "error"
    """It could not succeed, or was refused: ``reason`` says why."""
    KILLED = "killed"
    """Its process was ended by a signal, at each of three attempts."""
    OUT_OF_MEMORY = "out_of_memory"
    """Memory was taken away from it, proven by the kernel, or refused to it."""
    OUT_OF_MEMORY_SUSPECTED = "out_of_memory_suspected"
    """Killed, and memory is the likely cause, but nothing proves it."""
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    """It was revoked, or had expired before it started."""
    LOST_NODE = "lost_node"
    """Too many nodes were lost while they held it."""


_OF_REASON = {Reason.CANCELLED: DeadEnding.CANCELLED, Reason.TIME_LIMIT: DeadEnding.TIME_LIMIT}
_OF_OTHER_ENDS = {
    Ending.ALLOCATION_FAILED: DeadEnding.OUT_OF_MEMORY,
    Ending.EXITED: DeadEnding.ERROR,
    Ending.NO_RESULT: DeadEnding.ERROR,
    Ending.SPAWNER_LOST: DeadEnding.LOST_NODE,
}


_IN_WORDS = {
    DeadEnding.ERROR: "failed",
    DeadEnding.KILLED: "killed by a signal",
    DeadEnding.OUT_OF_MEMORY: "out of memory",
    DeadEnding.OUT_OF_MEMORY_SUSPECTED: "out of memory (suspected)",
    DeadEnding.TIME_LIMIT: "at its time limit",
    DeadEnding.CANCELLED: "cancelled",
    DeadEnding.LOST_NODE: "given up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The attempt that a job has failed in; of one that never ran nothing is known."""

    node: str | None = None
    reserved_bytes: int | None = None
    """Of the batch that it was in."""
    peak_bytes: int | None = None
    """Of that batch, at least; None = unknown: it is measured when a batch ends, after this item was told."""


NEVER_RAN = Attempt()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadJob:
    """One report; the texts are those of the failure."""

    kind: str
    job_id: str
    """Empty where its message could not be read."""
    name: str
    reason: str
    cause: str
    cure: str
    ending: DeadEnding
    attempts: int
    lost: int = 0
    attempt: Attempt = NEVER_RAN
    last_end: LastEnd | None = None
    place: Place | None = None
    serial: int | None = None
    """Its number in the list; the script that keeps it writes it."""
    at_ms: int | None = None
    """When it failed, by the server's clock; the script writes it."""
    text: bytes = field(default=b"", repr=False, compare=False)
    """The report as it is in the list: what takes it out of there."""

    @classmethod
    def of(
        cls,
        item: ClaimedItem,
        kind: str,
        failure: Failure,
        ran: Attempt | None = None,
        ending: DeadEnding | None = None,
    ) -> Self:
        """Return the report of a job that fails now; ``ran`` is None where no child had it.

        ``ending`` None: what failure and history tell.
        """
        root = _root(failure, item.last_end)
        before = None if root is None else _attempt_of(root)
        if ending is DeadEnding.LOST_NODE:
            before = Attempt(node=item.lost_on)
        return cls(
            kind=kind,
            job_id=item.job_id,
            name=failure.name,
            reason=failure.reason,
            cause=failure.cause,
            cure=failure.cure,
            ending=ending or _ending(failure, root),
            attempts=item.attempts,
            lost=item.lost,
            attempt=ran or before or NEVER_RAN,
            last_end=item.last_end,
            place=item.place,
        )

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Read a report; one of a former version lacks fields.

        Raises:
            ValueError: it is none.
        """
        try:
            told = json.loads(text)
            last_end = told.get("last_end")
            return cls(
                **{name: str(told.get(name, "")) for name in ("kind", "job_id", "name", "cause", "cure")},
                reason=str(told.get("reason", "")),
                ending=DeadEnding(told.get("ending", DeadEnding.ERROR)),
                attempts=_number(told, "attempts") or 0,
                lost=_number(told, "lost") or 0,
                attempt=Attempt(
                    node=told.get("node"),
                    reserved_bytes=_number(told, "reserved_bytes"),
                    peak_bytes=_number(told, "peak_bytes"),
                ),
                last_end=LastEnd.from_history(last_end) if last_end else None,
                place=_place(told),
                serial=_number(told, "serial"),
                at_ms=_number(told, "at_ms"),
                text=text,
            )
        except (AttributeError, TypeError) as error:
            raise ValueError("not the report of a dead job") from error

    def sentence(self) -> str:
        """Return e.g. "killed by a signal on node pc1 after 3 attempts, with 64 MiB reserved"."""
        where = "" if self.attempt.node is None else f" on node {self.attempt.node}"
        counts = _counted(self.attempts, "attempt") + _counted(self.lost, "lost node")
        after = f" after {' and '.join(counts)}" if counts else ""
        return f"{_IN_WORDS[self.ending]}{where}{after}{self._memory()}"

    def when(self) -> str:
        """Return e.g. ", at 2026-11-30T09:12:44+00:00"; empty where that is not known."""
        if self.at_ms is None:
            return ""
        return f", at {datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec='seconds')}"

    def _memory(self) -> str:
        reserved_bytes, peak_bytes = self.attempt.reserved_bytes, self.attempt.peak_bytes
        if reserved_bytes is None:
            return ""
        used = "" if peak_bytes is None else f" and at least {in_binary_units(peak_bytes)} in use"
        return f", with {in_binary_units(reserved_bytes, rounded_up=True)} reserved{used}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: of the list in Redis, and of ``--json``."""
        told: dict[str, Any] = {
            "kind": self.kind,
            "job_id": self.job_id,
            "name": self.name,
            "reason": self.reason,
            "cause": self.cause,
            "cure": self.cure,
            "ending": self.ending,
            "attempts": self.attempts,
            "lost": self.lost,
            "node": self.attempt.node,
            "reserved_bytes": self.attempt.reserved_bytes,
            "peak_bytes": self.attempt.peak_bytes,
        }
        if self.last_end is not None:
            told["last_end"] = self.last_end.to_dict()
        if self.place is not None:
            told |= {"project": self.place.project, "stage": self.place.stage, "item": self.place.item}
        numbers = {"serial": self.serial, "at_ms": self.at_ms}
        return {name: number for name, number in numbers.items() if number is not None} | told

    def retry_problem(self) -> str | None:
        """Return why `tiepoint retry` cannot put this job back whatever is kept of it; None: it may.

        A worker remembers for hours what was revoked.
        """
        if self.place is not None:
            return None
        if self.ending is DeadEnding.CANCELLED:
            return "was revoked or has expired, and workers refuse its id; send it again as a new job"
        return None if self.job_id else "could not be read, and has no id"

    def to_text(self) -> str:
        """Return the report for the script that keeps it."""
        return json.dumps(self.to_dict())


def _root(failure: Failure, last_end: LastEnd | None) -> LastEnd | None:
    """Return the earlier end that is the cause of this failure, if one is."""
    if last_end is None:
        return None
    is_for_want_of_room = failure.reason is Reason.NEEDS_BIGGER_NODE and last_end.ending.is_for_memory
    return last_end if failure.reason is Reason.WORKER_LOST or is_for_want_of_room else None


def _ending(failure: Failure, root: LastEnd | None) -> DeadEnding:
    if root is not None:
        return ending_of(root.ending)
    return _OF_REASON.get(failure.reason, DeadEnding.ERROR)


def ending_of(end: Ending) -> DeadEnding:
    """Return what a job has died of whose last attempt ended like this."""
    return _OF_OTHER_ENDS.get(end) or DeadEnding(end)


def _counted(count: int, noun: str) -> list[str]:
    return [f"{count} {noun}{'' if count == 1 else 's'}"] if count else []


def _attempt_of(end: LastEnd) -> Attempt:
    return Attempt(node=end.node, reserved_bytes=end.reserved_bytes, peak_bytes=end.peak_bytes)


def _number(told: dict[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is not None and type(value) is not int:
        raise TypeError(name)
    return value


def _place(told: dict[str, Any]) -> Place | None:
    parts = [told.get(part) for part in ("project", "stage", "item")]
    if not all(isinstance(part, str) and part for part in parts):
        return None
    project, stage, item = (str(part) for part in parts)
    return Place(project=project, stage=stage, item=item)
