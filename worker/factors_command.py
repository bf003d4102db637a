"""Holds the command ``factors``: what nodes have learned of durations; ``reset`` lets one start over.

Does not cover how factors are kept (:mod:`worker.factor_store`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import redis
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from governor.planning.learner import ONE, percent_of
from worker import keys
from worker.cluster_options import BrokerOption, require_queue
from worker.command_endings import plain_errors, say
from worker.command_options import JsonOption
from worker.connections import plain_client
from worker.control_commands import RESET_FACTORS, answers
from worker.factor_store import kept_fields, kept_keys
from worker.factor_verdicts import KeptFactors, UnreadableFactorsError, read_kept
from worker.project_queue import ProjectQueue, queue_errors
from worker.settings import Settings, WrongSettingError

_ANSWER_SECONDS = 3.0


class Action(StrEnum):
    """What is done."""

    SHOW = "show"
    RESET = "reset"


ActionArgument = Annotated[Action, typer.Argument(help="show, or reset: let a node start over.")]
NodeArgument = Annotated[
    str | None, typer.Argument(help="A node's name, alive or not; all live ones without.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptByNode:
    """One state that a node keeps."""

    node: str
    key: str
    kept: KeptFactors | None
    """None where nobody can read it."""
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of it; factors in percent, rounded up."""
        told: dict[str, Any] = {"node": self.node, "key": self.key, "problem": self.problem or None}
        if self.kept is None:
            return told
        device = self.kept.device
        kinds = {
            kind: {"factor_percent": percent_of(device[0] * ppm // ONE), "observations": count}
            for kind, (ppm, count) in sorted(self.kept.residuals.items())
        }
        hardware = dict(self.kept.fingerprint)
        return {
            **told,
            "sequence": self.kept.sequence,
            "device_factor_percent": percent_of(device[0]),
            "observations": device[1],
            "kinds": kinds,
            "hardware": hardware,
        }


def factors(
    action: ActionArgument = Action.SHOW,
    node: NodeArgument = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the nodes of a cluster have learned of durations, or let one node start over."""
    if action is Action.SHOW:
        show_factors(node, broker, as_json=as_json)
        return
    with plain_errors(), _queue(broker) as (client, settings):
        if node is None:
            raise WrongSettingError("which node? name it: tiepoint factors reset NAME")
        _reset(client, settings, node)


def show_factors(node: str | None, broker: str | None, *, as_json: bool) -> None:
    """Show what one node has learned, or all live ones; ``node --factors`` does the same."""
    with plain_errors(), _queue(broker) as (client, settings):
        found = list(_kept(client, [node] if node else _live(settings)))
    if as_json:
        typer.echo(json.dumps({"factors": [one.to_dict() for one in found]}))
    elif found:
        _show(Console(), found)
    else:
        say("nothing has been learned; nodes learn where [planning.margin_learning] is on")


@contextmanager
def _queue(broker: str | None) -> Iterator[tuple["redis.Redis", Settings]]:
    settings = Settings.checked(**({} if broker is None else {"broker_url": broker}))
    require_queue(settings)
    with closing(plain_client(settings.redis_url)) as client, queue_errors():
        yield client, settings


def _live(settings: Settings) -> list[str]:
    with closing(ProjectQueue(settings.redis_url)) as queue:
        return [node.name for node in queue.nodes()]


def _kept(client: "redis.Redis", nodes: Sequence[str]) -> Iterator[KeptByNode]:
    """Yield what the nodes keep, of each the latest first."""
    for node in nodes:
        states = [_read(client, node, key) for key in kept_keys(client, keys.factor_index(node))]
        yield from sorted(
            (state for state in states if state is not None),
            key=lambda state: -state.kept.sequence if state.kept else 0,
        )


def _read(client: "redis.Redis", node: str, key: str) -> KeptByNode | None:
    fields = kept_fields(client, key)
    if not fields:
        return None
    try:
        kept = read_kept(fields)
    except UnreadableFactorsError as error:
        return KeptByNode(node=node, key=key, kept=None, problem=str(error))
    return KeptByNode(node=node, key=key, kept=kept)


def _reset(client: "redis.Redis", settings: Settings, node: str) -> None:
    """Let a live node forget what it knows, and forget what it has kept."""
    alive = _live(settings)
    if node in alive and not _asked(settings, node, len(alive)):
        raise WrongSettingError(
            f"{node} has not answered within {_ANSWER_SECONDS:g} s, and would write its factors down again; "
            "try once more, or stop it first"
        )
    index = keys.factor_index(node)
    names = kept_keys(client, index)
    if not names and node not in alive:
        raise WrongSettingError(f"there is no live node {node}, and none of that name has learned anything")
    client.delete(*names, index)
    say(f"{node} starts over")


def _asked(settings: Settings, node: str, alive: int) -> bool:
    """Tell a node to forget; False where it does not answer."""
    told = answers(
        settings.broker_url, RESET_FACTORS, {"node": node}, alive=alive, timeout_seconds=_ANSWER_SECONDS
    )
    return any(answer.get("node") == node and "ok" in answer for answer in told)


def _show(console: Console, found: Sequence[KeptByNode]) -> None:
    for one in found:
        told = one.to_dict()
        if one.kept is None:
            console.print(f"{one.node}: {one.problem}", highlight=False, soft_wrap=True)
            continue
        hardware = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told["hardware"].items())
        line = (
            f"{one.node}: {told['device_factor_percent']} % after {told['observations']} batches ({hardware})"
        )
        console.print(line, highlight=False, soft_wrap=True)
        table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
        table.add_column("kind")
        table.add_column("factor", justify="right")
        table.add_column("batches", justify="right")
        for kind, values in told["kinds"].items():
            table.add_row(kind, f"{values['factor_percent']} %", str(values["observations"]))
        console.print(table)
