"""Holds the commands that read a project, wherever it was computed: ``status``, ``export``.

Does not cover commands that make one (:mod:`worker.local_commands`,
:mod:`worker.cluster_commands`).
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tasks.summary import summarise
from worker.command_endings import plain_errors, say, show
from worker.command_options import JsonOption
from worker.local_project import open_project


class ExportFormat(StrEnum):
    """What can be exported."""

    COLMAP = "colmap"
    PLY = "ply"


FormatOption = Annotated[ExportFormat, typer.Option("--format", help="What to write.")]
ProjectFolder = Annotated[Path, typer.Argument(help="The project's folder.")]


def status(folder: ProjectFolder, as_json: JsonOption = False) -> None:
    """Say how far a project is, from its folder alone."""
    with plain_errors():
        local = open_project(folder)
        summary = summarise(local.store, local.project)
    show(summary, as_json=as_json)


def export(
    folder: ProjectFolder,
    out: Annotated[Path, typer.Option(help="A new folder (colmap) or file (ply) to write.")],
    export_format: FormatOption = ExportFormat.COLMAP,
) -> None:
    """Write a project in a form that other programs open."""
    from tasks.exports.colmap import export_colmap  # noqa: PLC0415 - loads pycolmap, slow
    from tasks.exports.ply import export_ply  # noqa: PLC0415

    with plain_errors():
        local = open_project(folder)
        if export_format is ExportFormat.COLMAP:
            done = export_colmap(local.store, local.project.id, out)
            for name in done.missing_photos:
                say(f"{name}: the photo is gone or has changed, it is not in the export")
            say(f"wrote {done.images} images and {done.models} models to {out}")
        else:
            for path in export_ply(local.store, local.project.id, out):
                say(f"wrote {path}")
