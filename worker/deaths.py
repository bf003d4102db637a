"""Holds how a job's process ended: in words, in figures, and as its message remembers it. Pure.

Does not tell whether the kernel killed it for want of memory (:mod:`worker.memory_kills`).
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from governor.wording import in_binary_units
from worker.process import signal_name


class Ending(StrEnum):
    """Why a job ended without a result; the same codes in messages, logs and the list of dead jobs."""

    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed its process for want of memory: proven by the counter of its own cgroup."""
    OUT_OF_MEMORY_SUSPECTED = "out_of_memory_suspected"
    """Killed by SIGKILL, and memory is the likely cause, but no counter proves it."""
    ALLOCATION_FAILED = "allocation_failed"
    """It was refused memory that it asked for; its process lives."""
    KILLED = "killed"
    """Its process was ended by a signal."""
    EXITED = "exited"
    """Its process ended by itself."""
    TIME_LIMIT = "time_limit"
    """It was at work for longer than its kind allows, and we had its process killed."""
    NO_RESULT = "no_result"
    """It returned, but said nothing of its items."""
    SPAWNER_LOST = "spawner_lost"
    """Its process ended with the one that starts all of a node's: that says nothing of the job."""

    @property
    def is_for_memory(self) -> bool:
        """Tell whether more memory may help."""
        return self in {
            Ending.OUT_OF_MEMORY,
            Ending.OUT_OF_MEMORY_SUSPECTED,
            Ending.ALLOCATION_FAILED,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How one batch ended without a result."""

    ending: Ending
    cause: str
    """For people, without a full stop: "killed by SIGKILL"."""
    peak_bytes: int | None = None
    """What it had of memory in the end, at least; None = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEnd:
    """How an item's last attempt without a result ended; travels in its message."""

    ending: Ending
    node: str
    reserved_bytes: int
    """Of the batch that it was in."""
    peak_bytes: int | None = None
    """Of that batch, at least; None = unknown."""

    def to_text(self) -> str:
        """Return the JSON object that the scripts splice into the message: flat, no braces within."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        """Return the form of the list of dead jobs."""
        return asdict(self)

    @classmethod
    def from_history(cls, remembered: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_text` wrote.

        Raises:
            ValueError: it is of another form; messages come from anybody.
        """
        try:
            end = cls(**{**remembered, "ending": Ending(remembered["ending"])})
        except (KeyError, TypeError) as error:
            raise ValueError("the history's last end has other fields") from error
        figures = (end.reserved_bytes, 0 if end.peak_bytes is None else end.peak_bytes)
        if not isinstance(end.node, str) or any(type(figure) is not int for figure in figures):
            raise ValueError("the history's last end has a field of the wrong type")
        return end

    def sentence(self) -> str:
        """Return e.g. "the kernel killed it for want of memory (proven) on node a, with 64 MiB reserved"."""
        what = {
            Ending.OUT_OF_MEMORY: "the kernel killed it for want of memory (proven)",
            Ending.OUT_OF_MEMORY_SUSPECTED: "it was killed by SIGKILL (out of memory suspected)",
            Ending.ALLOCATION_FAILED: "it ran out of memory",
        }.get(self.ending, "it ended without a result")
        reserved = f"{in_binary_units(self.reserved_bytes, rounded_up=True)} reserved"
        used = "" if self.peak_bytes is None else f" and at least {in_binary_units(self.peak_bytes)} in use"
        return f"{what} on node {self.node}, with {reserved}{used}"


def plain_death(status: int, peak_bytes: int | None = None) -> Death:
    """Return what a wait status alone tells of a process's end."""
    if os.WIFSIGNALED(status):
        cause = f"killed by {signal_name(os.WTERMSIG(status))}"
        return Death(ending=Ending.KILLED, cause=cause, peak_bytes=peak_bytes)
    cause = f"ended with exit status {os.waitstatus_to_exitcode(status)}"
    return Death(ending=Ending.EXITED, cause=cause, peak_bytes=peak_bytes)
