"""Holds the remote command ``decisions``: nodes tell what their governor has decided, and on which readings.

It is one of Celery's ``inspect`` commands, answered by the main process while
children work; ``celery -A worker.app inspect decisions`` asks for it too. Does
not cover who shows it (:mod:`worker.node_command`, :mod:`worker.explanation`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery.worker.control import inspect_command

from governor.trace import TraceEntry, stretches
from worker.control_commands import answers
from worker.node import node_of

COMMAND = "decisions"
MOST_TOLD = 32
"""A reply of so many has about 25 KB; a queue is no place for more."""


@inspect_command(
    name=COMMAND, signature="[NODE [KIND [MOST]]]", args=[("node", str), ("kind", str), ("most", int)]
)
def decisions(state: Any, node: str = "", kind: str = "", most: int = MOST_TOLD, **_: Any) -> dict[str, Any]:
    """Tell the governor's last decisions, newest first: of all nodes and kinds, or of one."""
    ours = node_of(state.app)
    if node not in {"", ours.settings.name}:
        return {"node": ours.settings.name, "decisions": []}
    told = told_decisions(ours.governor.trace(), time.monotonic_ns(), kind=kind, most=most)
    return {"node": ours.settings.name, "decisions": told}


def told_decisions(
    trace: Sequence[TraceEntry], now_ns: int, *, kind: str = "", most: int = MOST_TOLD
) -> list[dict[str, Any]]:
    """Return the last decisions as JSON objects, newest first: equal ones in a row are one."""
    found = stretches(entry for entry in trace if kind in {"", entry.kind})
    return [stretch.to_dict(now_ns) for stretch in found[: max(0, min(most, MOST_TOLD))]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one node has told."""

    node: str
    decisions: tuple[Mapping[str, Any], ...]


def ask_nodes(
    broker_url: str,
    *,
    node: str = "",
    kind: str = "",
    most: int = MOST_TOLD,
    alive: int,
    timeout_seconds: float,
) -> list[Answer]:
    """Ask all nodes, or one, for their decisions; ``alive`` answers end the waiting early.

    A node that does not answer in time is missing.

    Raises:
        redis.RedisError, kombu.exceptions.OperationalError: the queue does not answer.
    """
    if alive == 0:
        return []
    asked_for = {"node": node, "kind": kind, "most": most}
    told = answers(broker_url, COMMAND, asked_for, alive=alive, timeout_seconds=timeout_seconds)
    # A worker of an older version answers with an error.
    return [
        Answer(node=str(answer["node"]), decisions=tuple(answer["decisions"]))
        for answer in told
        if {"node", "decisions"} <= answer.keys()
    ]
