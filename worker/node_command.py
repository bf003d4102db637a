"""Holds the command ``node``: the nodes of a cluster, one of them with its decisions, or this machine.

Does not cover how they are shown (:mod:`worker.node_tables`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from worker.cluster_options import BrokerOption, require_queue
from worker.command_endings import plain_errors, say
from worker.command_options import JsonOption
from worker.factors_command import show_factors
from worker.live_nodes import LiveNode, names_of
from worker.node_tables import show_node, show_nodes, show_this_machine
from worker.project_queue import ProjectQueue, queue_errors
from worker.settings import Settings, WrongSettingError
from worker.this_machine import read_this_machine
from worker.trace_command import ask_nodes

_ANSWER_SECONDS = 3.0

NodeName = Annotated[
    str | None, typer.Argument(help="A node's name: tell its last decisions, too. All nodes without.")
]


FactorsOption = Annotated[
    bool, typer.Option("--factors", help="Show instead what they have learned of durations.")
]


def node(
    name: NodeName = None,
    factors: FactorsOption = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the nodes of a cluster, or one; without a queue, what a worker on this machine would see."""
    if factors:
        show_factors(name, broker, as_json=as_json)
        return
    with plain_errors():
        settings = Settings.checked(**({} if broker is None else {"broker_url": broker}))
        if name is None and "broker_url" not in settings.model_fields_set:
            _show_here(settings, as_json=as_json)
        else:
            require_queue(settings)
            _show_cluster(settings, name, as_json=as_json)


def _show_here(settings: Settings, *, as_json: bool) -> None:
    machine = read_this_machine(settings)
    if as_json:
        typer.echo(json.dumps(machine.to_dict()))
    else:
        show_this_machine(Console(), machine)


def _show_cluster(settings: Settings, name: str | None, *, as_json: bool) -> None:
    with _queue(settings) as queue:
        alive = queue.nodes()
    if name is not None:
        _show_one(settings, _named(alive, name), len(alive), as_json=as_json)
    elif as_json:
        typer.echo(json.dumps({"nodes": [one.to_dict() for one in alive]}))
    elif alive:
        show_nodes(Console(), alive)
    else:
        say("no worker is connected; start one with: tiepoint worker --broker URL --store DIR")


def _show_one(settings: Settings, asked: LiveNode, alive: int, *, as_json: bool) -> None:
    decisions = _decisions(settings, asked.name, alive)
    problem = None if decisions is not None else _unanswered(asked.name)
    if as_json:
        found: dict[str, Any] = {"node": asked.to_dict(), "decisions": decisions, "problem": problem}
        typer.echo(json.dumps(found))
    else:
        show_node(Console(), asked, decisions, problem)


def _decisions(settings: Settings, name: str, alive: int) -> Sequence[Mapping[str, Any]] | None:
    """Ask a node what it decided; None where it does not answer."""
    with queue_errors():
        answers = ask_nodes(settings.broker_url, node=name, alive=alive, timeout_seconds=_ANSWER_SECONDS)
    return next((list(answer.decisions) for answer in answers if answer.node == name), None)


def _unanswered(name: str) -> str:
    return (
        f"{name} has not answered within {_ANSWER_SECONDS:g} s: its decisions are not known, the rest is "
        "from its last heartbeat; it may be stopping, cut off or of an older version; its log says more"
    )


def _named(alive: Sequence[LiveNode], name: str) -> LiveNode:
    for one in alive:
        if one.name == name:
            return one
    there_are = f"alive are: {names_of(alive)}" if alive else "none is alive"
    raise WrongSettingError(f"there is no live node {name}; {there_are}")


@contextmanager
def _queue(settings: Settings) -> Iterator[ProjectQueue]:
    with closing(ProjectQueue(settings.redis_url)) as queue:
        yield queue
