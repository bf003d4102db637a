"""Says what a node has reserved, for monitors: in words for people, as data for programs.

Celery's ``inspect stats`` and Flower's page of a worker show it. Does not cover
the registry of nodes (:mod:`worker.lease`).
"""

from collections.abc import Mapping
from typing import Any

from governor.governor import Governor
from governor.wording import in_binary_units

_SHOWN_DECISIONS = 8


def report(governor: Governor, waits_for: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lines of a node's page, the most wanted first, and all numbers below ``governor``.

    ``details`` are numbers that others keep. ``waits_for`` says why nothing more was started, "" where
    nothing waits. What people read comes first: pages show a mapping as it is, in one line.
    """
    decisions = [entry.sentence() for entry in governor.trace()[-_SHOWN_DECISIONS:]]
    return {
        **_in_words(governor, waits_for, decisions),
        "governor": {**details, "decisions": decisions},
    }


def _in_words(governor: Governor, waits_for: str, decisions: list[str]) -> dict[str, str]:
    free = governor.availability()
    reserved_memory, memory = map(in_binary_units, (free.reserved.memory_bytes, free.budget.memory_bytes))
    return {
        "pressure": str(governor.pressure()),
        "memory": f"{reserved_memory} of {memory} reserved",
        "threads": f"{free.reserved.cpu_threads} of {free.budget.cpu_threads} reserved",
        "batches": f"{free.active_reservations} running",
        "waits for": waits_for or "nothing",
        "last decision": decisions[-1] if decisions else "none yet",
    }
