"""Opens, makes and runs the project of one folder: a store that holds a single project.

One run at a time works in a folder. Does not cover how the machine is used (:mod:`worker.local_run`).
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tasks.errors import ProjectError, StoreError
from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Project, Store
from tasks.store.identity import FILE_NAME as STORE_FILE_NAME
from tasks.summary import summarise
from worker.display import RunDisplay
from worker.folder_lock import LOCK_NAME, FolderInUseError, hold
from worker.local_run import LocalOptions, run_locally
from worker.project_state import measured

PROJECT_ID = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProject:
    """A project and the store it is alone in."""

    store: Store
    project: Project
    is_new: bool = False


@contextmanager
def new_project(
    folder: Path, photos: Path, parameters: ProjectParameters, *, link: bool
) -> Iterator[LocalProject]:
    """Make a project of a folder of photos, held for the block; the same project again is continued.

    Raises:
        ProjectError: no photos, the folder holds something else, or another run works in it.
    """
    sources = find_photos(photos)
    _check_folder(folder)
    store = Store(folder)
    store.create()
    with _only_run(folder):
        project = store.project(PROJECT_ID)
        is_new = not project.exists()
        project.create(parameters, sources, link=link)
        project.clear_failures()  # Continued, it tries again what had failed, as `resume` does.
        yield LocalProject(store=store, project=project, is_new=is_new)


@contextmanager
def interrupted_project(folder: Path) -> Iterator[LocalProject]:
    """Open the project of a folder to finish it, held for the block; what had failed is tried again.

    Raises:
        ProjectError: there is none, or another run works in it.
    """
    local = open_project(folder)
    with _only_run(folder):
        local.project.clear_failures()
        yield local


@contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Hold the folder: two runs would do everything twice, and each report half of it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(hold(folder))
        except FolderInUseError as error:
            raise ProjectError(
                f"another run is working in {folder}; wait for it to end, or name another folder"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot write in {folder}: {error.strerror}") from error
        yield


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ProjectError(f"{folder} is a file; name a new folder with --project")
    if _holds_something(folder) and not Store(folder).project(PROJECT_ID).exists():
        raise ProjectError(f"{folder} is not empty and holds no project; name a new folder with --project")


def _holds_something(folder: Path) -> bool:
    # A run that was killed early may have left nothing but its lock. A store whose project was
    # damaged and deleted is still ours: what was made of its photos is used again.
    if not folder.is_dir() or (folder / STORE_FILE_NAME).is_file():
        return False
    return any(path.name != LOCK_NAME for path in folder.iterdir())


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
    # What killed processes left behind; not what another run of this folder is writing now.
    local.store.sweep_temporaries(time.time_ns())
    try:
        with RunDisplay(console) as display:
            state = run_locally(local.store, local.project, options, display.watch)
    except BaseException:
        # Our processes are gone; what they were writing when they were ended is nobody's now.
        with suppress(StoreError):  # It may be what has ended the run.
            local.store.sweep_temporaries(time.time_ns(), min_age_seconds=0)
        raise
    summary = {**summarise(local.store, local.project), **measured(state)}
    local.project.write_result(summary)
    return summary
