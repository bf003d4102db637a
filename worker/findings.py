"""Holds what a check of the cluster or of this machine has found.

Does not cover what is checked (:mod:`worker.queue_checks`, :mod:`worker.machine_checks`).
"""

from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but something may be lost or slow one day."""
    PROBLEM = "problem"
    """Does not work, or will not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check has found, in words a user can act on."""

    name: str
    """What was looked at: one or two words, the same every time."""
    state: State
    told: str
    """One sentence, without a full stop."""
    cure: str = ""
    """What to do about it; empty where there is nothing to do."""

    def to_dict(self) -> dict[str, str]:
        """Return the JSON object of it."""
        return {key: str(value) for key, value in asdict(self).items()}


def fine(name: str, told: str) -> Finding:
    """Return a finding that nobody has to do anything about."""
    return Finding(name=name, state=State.OK, told=told)


def warning(name: str, told: str, cure: str) -> Finding:
    """Return a finding that works for now."""
    return Finding(name=name, state=State.WARNING, told=told, cure=cure)


def problem(name: str, told: str, cure: str) -> Finding:
    """Return a finding that does not work, or will not."""
    return Finding(name=name, state=State.PROBLEM, told=told, cure=cure)
