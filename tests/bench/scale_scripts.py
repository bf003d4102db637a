"""Measures the server's own time per script at a thousand waiting messages and at a million, by turns.

Two lists of one kind stand in one server, a shallow and a deep one, both of
messages as a planner pushes them. In each round, and for each list, the
figures are reset and one script is called alone; so they are that script's.
What is settled pushes a follow-up into the list it came from: it keeps its
length, and its messages pass from one end to the other.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import Any

import redis

from tasks.kind import Job
from tasks.pair_jobs import MATCH_KIND, MATCH_STAGE, MatchPayload
from tests.bench.scale_server import script_usec_per_call, usage
from tests.integration.scripted_node import leased_node
from worker import keys
from worker.envelope import to_push
from worker.redis_scripts import Script, run

_SHALLOW, _DEEP = (keys.queue_list(MATCH_KIND, priority) for priority in (3, 6))
_PROJECT = "scale"
_PER_CALL = 500
_RIGHT = "f" * 64
"""Of every pair; its left image is its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """How much waits in the two lists, and how often each script is measured."""

    shallow: int = 1_000
    deep: int = 1_000_000
    rounds: int = 15
    calls: int = 200
    """Of one script in a round, for each list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTime:
    """Medians of the rounds; the ratio is the median of each round's own."""

    shallow_usec: float
    deep_usec: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFigures:
    """What both depths cost."""

    depths: Depths
    message_bytes: int
    server_memory_bytes: int
    """With all messages."""
    scripts: dict[str, ScriptTime]


class _Caller:
    """Calls one script at a time as a node does; what it claims it settles."""

    def __init__(self, server: "redis.Redis", items: Iterator[int]) -> None:
        """``items`` numbers the pairs: each message is another's."""
        self._items = items
        self._server = server
        self._node = leased_node(server)

    @property
    def calls(self) -> dict[str, Callable[[str], object]]:
        """Return what is measured, in an order in which there is always something to settle."""
        return {"claim": self._claim, "settle": self._settle, "peek": self._peek, "renew": self._renew}

    def _claim(self, source: str) -> None:
        self._node.claim(source=source)

    def _settle(self, source: str) -> None:
        tag, _ = self._node.held.pop()
        follow_up = _pushed(next(self._items)) | {"list": source}
        place = {"project": _PROJECT, "stage": MATCH_STAGE, "item": "none"}
        self._node.settle({"tag": tag, "action": "done", "pushes": [follow_up], **place})

    def _peek(self, source: str) -> None:
        run(self._server, Script.PEEK, [source], "list")

    def _renew(self, _source: str) -> None:
        self._node.renew()


def measure_scripts(server: "redis.Redis", depths: Depths) -> ScriptFigures:
    """Fill both lists and measure."""
    items = count()
    for source, messages in ((_SHALLOW, depths.shallow), (_DEEP, depths.deep)):
        _fill(server, source, messages, items)
    memory_bytes = usage(server).memory_bytes
    calls = _Caller(server, items).calls  # Its lease does not last for as long as filling may take.
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(depths.rounds):
        order = (_SHALLOW, _DEEP) if number % 2 else (_DEEP, _SHALLOW)
        of_round = {source: _round(server, source, calls, depths.calls) for source in order}
        for name in calls:
            found[name].append((of_round[_SHALLOW][name], of_round[_DEEP][name]))
    return ScriptFigures(
        depths=depths,
        message_bytes=len(_pushed(0)["payload"]),
        server_memory_bytes=memory_bytes,
        scripts={name: _script_time(pairs) for name, pairs in found.items()},
    )


def _round(
    server: "redis.Redis", source: str, calls: dict[str, Callable[[str], object]], times: int
) -> dict[str, float]:
    usec = {}
    for name, call in calls.items():
        server.config_resetstat()
        for _ in range(times):
            call(source)
        usec[name] = script_usec_per_call(server)
    return usec


def _script_time(pairs: list[tuple[float, float]]) -> ScriptTime:
    return ScriptTime(
        shallow_usec=statistics.median(shallow for shallow, _ in pairs),
        deep_usec=statistics.median(deep for _, deep in pairs),
        ratio=statistics.median(deep / shallow for shallow, deep in pairs),
    )


def _pushed(number: int) -> dict[str, str]:
    """Return the job of a pair as a planner pushes it."""
    left = f"{number:064x}"
    payload = MatchPayload(left=left, right=_RIGHT, project=_PROJECT).model_dump(mode="json")
    item = f"{left}-{_RIGHT}"
    return to_push(Job(kind=MATCH_KIND, payload=payload, project=_PROJECT, stage=MATCH_STAGE, item=item))


def _fill(server: "redis.Redis", source: str, messages: int, items: Iterator[int]) -> None:
    """Let so many messages wait, each another pair's; written anew only where they differ."""
    number = next(items)
    template, marked = _pushed(number)["payload"], f"{number:064x}"
    for begin in range(0, messages, _PER_CALL):
        group = islice(items, min(_PER_CALL, messages - begin))
        server.lpush(source, *(template.replace(marked, f"{item:064x}") for item in group))


def to_dict(figures: ScriptFigures) -> dict[str, Any]:
    """Return figures as JSON has them, rounded."""
    rounded = {
        name: {what: round(value, 2) for what, value in asdict(time).items()}
        for name, time in figures.scripts.items()
    }
    return asdict(figures) | {"scripts": rounded}
