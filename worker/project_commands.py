"""Holds the commands that know both sorts of projects: ``status``, ``resume``, ``export``.

A project is a folder (made by ``run``), or a name in a cluster's store. Does
not cover commands that make one (:mod:`worker.local_commands`,
:mod:`worker.cluster_commands`).
"""

import json
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tasks.errors import ProjectError
from tasks.store import Store
from tasks.summary import summarise
from worker.blocked import Blocked
from worker.cluster_options import BrokerOption, StoreOption, cluster, store_of_cluster
from worker.cluster_watch import show_started_again
from worker.command_endings import plain_errors, say, show
from worker.command_options import (
    CpusOption,
    JsonOption,
    MemoryOption,
    Profile,
    ProfileOption,
    Until,
    UntilOption,
)
from worker.eta import eta_seconds, in_words, shipped_reference
from worker.live_nodes import LiveNode
from worker.local_commands import resume_folder
from worker.local_project import LocalProject, open_project
from worker.project_state import ProjectState
from worker.settings import Settings, WrongSettingError
from worker.store_wait import is_for_store


class ExportFormat(StrEnum):
    """What can be exported."""

    COLMAP = "colmap"
    PLY = "ply"


FormatOption = Annotated[ExportFormat, typer.Option("--format", help="What to write.")]
ProjectArgument = Annotated[str, typer.Argument(help="The project's folder, or its name on a cluster.")]
ProjectOrAll = Annotated[
    str | None,
    typer.Argument(help="The project's folder, or its name on a cluster; all of the cluster without."),
]


def status(
    project: ProjectOrAll = None,
    broker: BrokerOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how far a project is, from its folder alone; of a cluster also what the queue knows."""
    with plain_errors():
        if project is None:
            _show_all(broker, store, as_json=as_json)
            return
        opened = _opened(project, store)
        summary = summarise(opened.store, opened.project)
        live = _live(project, broker, store)
    show({**summary, **live}, as_json=as_json)
    if live and not as_json:
        quoted = shlex.quote(project)
        left = "" if live["eta_seconds"] is None else f", {in_words(live['eta_seconds'])}"
        say(f"{project} is {live['state']}{left}; `tiepoint explain {quoted}` says more")
        for blocked in live["blocked"]:
            say(blocked["sentence"])
        for node, waits_for in live["waiting_for_store"].items():
            say(f"node {node} waits for {waits_for}")


def _live(project: str, broker: str | None, store: Path | None) -> dict[str, Any]:
    """Return what the queue knows of a project of a cluster; nothing where no queue is named."""
    root = store_of_cluster(project, store)
    if root is None or (broker is None and "broker_url" not in Settings.checked().model_fields_set):
        return {}
    with cluster(broker, root) as client:
        state = client.state(project)
        is_running = state.state == "running"
        blocked = client.blocked(project) if is_running else []
        nodes = client.nodes() if is_running else []
    away = {node.name: node.waits_for for node in nodes if is_for_store(node.waits_for)}
    return {**_live_fields(state, blocked, nodes), "waiting_for_store": away}


def _live_fields(state: ProjectState, blocked: list[Blocked], nodes: Sequence[LiveNode]) -> dict[str, Any]:
    left = eta_seconds(state, shipped_reference(), nodes)
    return {
        "state": state.state,
        "phase": state.phase,
        "outstanding": state.outstanding,
        "eta_seconds": None if left is None else round(left, 1),
        "blocked": [one.to_dict() for one in blocked],
    }


def _show_all(broker: str | None, store: Path | None, *, as_json: bool) -> None:
    with cluster(broker, store) as client:
        states = [(name, client.state(name)) for name in client.projects()]
        blocked_of, nodes = _by_project(client.blocked()), client.nodes()
    live = {name: _live_fields(state, blocked_of.get(name, []), nodes) for name, state in states}
    if as_json:
        typer.echo(json.dumps({"projects": [{"project": name, **fields} for name, fields in live.items()]}))
        return
    for name, state in states:
        typer.echo(f"{name}: {state.state}{_where(state, live[name]['eta_seconds'])}")
        for one in blocked_of.get(name, []):
            typer.echo(f"  {one.sentence()}")
    if not states:
        say("the store holds no project yet; `tiepoint submit PHOTOS` makes one")


def _where(state: ProjectState, seconds_left: float | None) -> str:
    """Return how far a running project is; nothing of another."""
    if state.state != "running":
        return ""
    left = "" if seconds_left is None else f", {in_words(seconds_left)}"
    return f", in {state.phase or 'import'}, {state.outstanding} jobs open{left}"


def _by_project(found: list[Blocked]) -> dict[str, list[Blocked]]:
    projects = {one.project for one in found}
    return {project: [one for one in found if one.project == project] for project in projects}


def resume(
    project: ProjectArgument,
    broker: BrokerOption = None,
    store: StoreOption = None,
    until: UntilOption = Until.MODEL,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    profile: ProfileOption = Profile.INTERACTIVE,
    as_json: JsonOption = False,
) -> None:
    """Finish a project that was interrupted; failed items are tried again."""
    with plain_errors():
        root = store_of_cluster(project, store)
        if root is None:
            resume_folder(Path(project), until, cpus, memory, profile, as_json=as_json)
            return
        if cpus is not None or memory is not None:
            raise WrongSettingError(
                "--cpus and --memory are options of the cluster's workers; leave them out"
            )
        with cluster(broker, root) as client:
            client.project(project)
            client.retry(project, until=until.value)
    show_started_again(project, as_json=as_json)


def export(
    project: ProjectArgument,
    out: Annotated[Path, typer.Option(help="A new folder (colmap) or file (ply) to write.")],
    export_format: FormatOption = ExportFormat.COLMAP,
    store: StoreOption = None,
) -> None:
    """Write a project in a form that other programs open."""
    from tasks.exports.colmap import export_colmap  # noqa: PLC0415 - loads pycolmap, slow
    from tasks.exports.ply import export_ply  # noqa: PLC0415

    with plain_errors():
        opened = _opened(project, store)
        if export_format is ExportFormat.COLMAP:
            done = export_colmap(opened.store, opened.project.id, out)
            for name in done.missing_photos:
                say(f"{name}: the photo is gone or has changed, it is not in the export")
            say(f"wrote {_counted(done.images, 'image')} and {_counted(done.models, 'model')} to {out}")
        else:
            for path in export_ply(opened.store, opened.project.id, out):
                say(f"wrote {path}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _opened(project: str, store: Path | None) -> LocalProject:
    """Open a project, whatever sort it is.

    Raises:
        ProjectError: there is none.
    """
    root = store_of_cluster(project, store)
    if root is None:
        return open_project(Path(project))
    opened = Store(root.resolve())
    if project not in opened.project_ids():
        raise ProjectError(f"the store {root} holds no project {project}; `tiepoint status` lists them")
    return LocalProject(store=opened, project=opened.project(project))
