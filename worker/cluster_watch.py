"""Shows a project on a cluster while it runs, and what it has come to.

Does not cover projects of one machine (:mod:`worker.local_project`).
"""

import shlex
import time
from collections.abc import Callable

import typer
from rich.console import Console

from tasks.summary import summarise
from worker.client import Client
from worker.command_endings import EXIT_FAILED, exit_with_failures, plain_errors, say, show
from worker.display import RunDisplay
from worker.explanation import hindrances
from worker.live_nodes import LiveNode
from worker.project_state import ProjectState, measured

_TELL_AFTER_SECONDS = 5.0
_TELL_AGAIN_AFTER_SECONDS = 60.0


class Standstill:
    """Notices that a project has not moved for a while; tells why now and again."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: ProjectState | None = None
        self._tell_at = now() + _TELL_AFTER_SECONDS

    def reasons(self, state: ProjectState, nodes: Callable[[], list[LiveNode]]) -> list[str]:
        """Return what to tell about this state: nothing while the project moves."""
        now = self._now()
        if state != self._last:
            self._last, self._tell_at = state, now + _TELL_AFTER_SECONDS
        if now < self._tell_at:
            return []
        self._tell_at = now + _TELL_AGAIN_AFTER_SECONDS
        return hindrances(state, nodes())


def watch_to_the_end(client: Client, project_id: str, console: Console) -> None:
    """Show a project's progress until it is no longer running.

    Raises:
        QueueError: the queue does not answer.
    """
    standstill = Standstill()
    with RunDisplay(console) as display:
        for state in client.watch(project_id):
            display.watch(state, waits_for="")
            for reason in standstill.reasons(state, client.nodes):
                display.tell(reason)


def end_of(client: Client, project_id: str, *, as_json: bool) -> None:
    """Show what a project has come to, and exit with its code."""
    with plain_errors():
        state = client.state(project_id)
        project = client.project(project_id)
        summary = {**summarise(client.store, project), **measured(state), "state": state.state}
        if state.state == "done":
            project.write_result(summary)
    client.close()
    show(summary, as_json=as_json)
    _exit_unless_done(project_id, state)
    if not as_json:
        quoted = shlex.quote(project_id)
        say(f"results in {project.path}; `tiepoint export {quoted} --out FOLDER` writes them for COLMAP")
    exit_with_failures(summary)


def _exit_unless_done(project_id: str, state: ProjectState) -> None:
    if state.state == "done":
        return
    if state.failure is not None:
        say(f"error: planning failed: {state.failure.cause.rstrip('.')}. {state.failure.cure}", style="red")
    else:
        quoted = shlex.quote(project_id)
        say(f"error: {project_id} is {state.state}; `tiepoint resume {quoted}` goes on", style="red")
    raise typer.Exit(EXIT_FAILED)
