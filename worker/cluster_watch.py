"""Shows a project on a cluster while it runs, and what it has come to.

Does not cover projects of one machine (:mod:`worker.local_project`).
"""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import typer
from rich.console import Console

from tasks.store import Project
from tasks.summary import summarise
from worker.blocked import Blocked
from worker.client import Client
from worker.command_endings import EXIT_FAILED, exit_with_failures, say, show
from worker.display import RunDisplay
from worker.explanation import hindrances
from worker.live_nodes import LiveNode
from worker.project_state import ProjectState, measured

_TELL_AFTER_SECONDS = 5.0
_TELL_AGAIN_AFTER_SECONDS = 60.0
_LOOK_FOR_BLOCKED_SECONDS = 2.0


class Standstill:
    """Notices that a project has not moved for a while; tells why now and again."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: ProjectState | None = None
        self._tell_at = now() + _TELL_AFTER_SECONDS

    def reasons(self, state: ProjectState, nodes: Callable[[], list[LiveNode]]) -> list[str]:
        """Return what to tell about this state: nothing while the project moves, or a node has work."""
        now = self._now()
        if state != self._last:
            self._last, self._tell_at = state, now + _TELL_AFTER_SECONDS
        if now < self._tell_at:
            return []
        alive = nodes()
        if any(node.reserved_cpu_threads for node in alive):
            return []
        self._tell_at = now + _TELL_AGAIN_AFTER_SECONDS
        return hindrances(state, alive)


class BlockedNews:
    """Tells what no live node has room for: once, and when that is over; other jobs may go on meanwhile."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._look_at = now()
        self._told: dict[tuple[str, ...], Blocked] = {}

    def sentences(self, state: ProjectState, look: Callable[[], list[Blocked]]) -> list[str]:
        """Return what to tell now; looks every two seconds while the project runs."""
        now = self._now()
        if state.state != "running" or now < self._look_at:
            return []
        self._look_at = now + _LOOK_FOR_BLOCKED_SECONDS
        found = {one.cause_key: one for one in look()}
        new = [one.sentence() for key, one in found.items() if key not in self._told]
        over = [f"no longer blocked: {one.kind}" for key, one in self._told.items() if key not in found]
        self._told = found
        return [*over, *new]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a watched project has come to."""

    project: Project
    state: ProjectState
    summary: dict[str, Any]


def show_started_again(project_id: str, *, as_json: bool) -> None:
    """Say that a project goes on, and how to see it."""
    if as_json:
        typer.echo(json.dumps({"project": project_id}))
    else:
        say(f"started again; `tiepoint watch {shlex.quote(project_id)}` shows how it goes")


def watch_to_the_end(client: Client, project_id: str, console: Console) -> Ending:
    """Show a project's progress until it is no longer running; a finished one gets its result written.

    Raises:
        QueueError: the queue does not answer.
    """
    standstill, news = Standstill(), BlockedNews()
    state = ProjectState(state="unknown")
    with RunDisplay(console) as display:
        for state in client.watch(project_id):
            display.watch(state, waits_for="")
            for sentence in news.sentences(state, partial(client.blocked, project_id)):
                display.tell(sentence)
            for reason in standstill.reasons(state, client.nodes):
                display.tell(reason)
    project = client.project(project_id)
    summary = {**summarise(client.store, project), **measured(state), "state": state.state}
    if state.state == "done":
        project.write_result(summary)
    return Ending(project=project, state=state, summary=summary)


def show_ending(ending: Ending, *, as_json: bool) -> None:
    """Show what a project has come to, and exit with its code."""
    show(ending.summary, as_json=as_json)
    _exit_unless_done(ending)
    if not as_json:
        quoted = shlex.quote(ending.project.id)
        export = f"`tiepoint export {quoted} --out FOLDER` writes them for COLMAP"
        say(f"results in {ending.project.path}; {export}")
    exit_with_failures(ending.summary)


def _exit_unless_done(ending: Ending) -> None:
    state, failure = ending.state.state, ending.state.failure
    if state == "done":
        return
    if failure is not None:
        say(f"error: planning failed: {failure.cause.rstrip('.')}. {failure.cure}", style="red")
    else:
        go_on = f"`tiepoint resume {shlex.quote(ending.project.id)}` goes on"
        say(f"error: {ending.project.id} is {state}; {go_on}", style="red")
    raise typer.Exit(EXIT_FAILED)
