"""Opens, makes and runs the project of one folder: a store that holds a single project.

Does not cover how the machine is used (:mod:`worker.local_run`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tasks.catalog import STAGES
from tasks.errors import ProjectError
from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Project, Store
from tasks.summary import summarise
from worker.client import ProjectState
from worker.display import RunDisplay
from worker.local_run import LocalOptions, run_locally

PROJECT_ID = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProject:
    """A project and the store it is alone in."""

    store: Store
    project: Project


def create_project(folder: Path, photos: Path, parameters: ProjectParameters, *, link: bool) -> LocalProject:
    """Make a project of a folder of photos; the same project again is continued.

    Raises:
        ProjectError: no photos, or the folder holds something else.
    """
    sources = find_photos(photos)
    _check_folder(folder)
    store = Store(folder)
    store.create()
    project = store.project(PROJECT_ID)
    project.create(parameters, sources, link=link)
    return LocalProject(store=store, project=project)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProjectError(f"{folder} is a file; name a new folder with --project")
    if folder.is_dir() and any(folder.iterdir()) and not Store(folder).project(PROJECT_ID).exists():
        raise ProjectError(f"{folder} is not empty and holds no project; name a new folder with --project")


def open_project(folder: Path) -> LocalProject:
    """Open the project of a folder.

    Raises:
        ProjectError: there is none.
    """
    store = Store(folder)
    project = store.project(PROJECT_ID)
    if not project.exists():
        raise ProjectError(
            f"{folder} holds no project; make one with: tiepoint run PHOTOS --project {folder}"
        )
    return LocalProject(store=store, project=project)


def run_and_summarise(local: LocalProject, options: LocalOptions, console: Console) -> dict[str, Any]:
    """Run a project to its end, showing progress; return what it has come to."""
    with RunDisplay(console) as display:
        state = run_locally(local.store, local.project, options, display.watch)
    summary = {**summarise(local.store, local.project), **_measured(state)}
    local.project.write_result(summary)
    return summary


def _measured(state: ProjectState) -> dict[str, Any]:
    """Return what only the queue knows of a run."""
    stages = {stage: progress for stage, progress in state.stages.items() if stage in STAGES}
    return {
        "seconds": {stage: progress.seconds for stage, progress in stages.items()},
        "jobs": {
            "done": sum(progress.done for progress in stages.values()),
            "failed": sum(progress.failed for progress in stages.values()),
            "retried": state.retried,
        },
        "kinds": state.kinds,
        "peak_memory_bytes": state.peak_bytes,
    }
