"""Holds the command ``worker``: checks the settings, then becomes one governed worker.

Does not cover what a worker does (:mod:`worker.puller`).
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.command_endings import plain_errors
from worker.command_options import CpusOption, MemoryOption, Profile, read_bytes
from worker.node import check_partition
from worker.planning_settings import PlanningFileError, read_planning_file
from worker.profile_file import ProfileFileError, read_profiles
from worker.queue_at_start import check_entry
from worker.settings import PREFIX, Settings, WrongSettingError


def worker(
    broker: Annotated[
        str | None, typer.Option(help=f"URL of the queue (default: the variable {PREFIX}BROKER_URL).")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help=f"Root of the project store (default: the variable {PREFIX}STORE).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Stable name of this node (default: host name)")] = None,
    memory: MemoryOption = None,
    cpus: CpusOption = None,
    profile: Annotated[
        Profile | None, typer.Option(help="interactive leaves room for you, dedicated does not.")
    ] = None,
    import_root: Annotated[list[Path] | None, typer.Option(help="Folder that photos may come from.")] = None,
    planning: Annotated[
        Path | None, typer.Option(help="TOML file with [planning]: how durations are planned.")
    ] = None,
) -> None:
    """Run one governed worker on this machine until it is told to stop.

    What is not given is read from the environment.
    """
    options: dict[str, Any] = {
        "broker_url": broker,
        "store": store,
        "name": name,
        "memory_bytes": read_bytes(memory),
        "cpus": cpus,
        "profile": profile,
        "import_roots": tuple(import_root) if import_root else None,
    }
    with plain_errors():
        options["planning"] = None if planning is None else _read_planning(planning)
        settings = Settings.checked(**{key: value for key, value in options.items() if value is not None})
        settings = settings.model_copy(update={"store": settings.store.resolve()})
        check_partition(settings)
        _check_folders(settings.store, *settings.import_roots)
        _check_profiles(settings)
        check_entry(settings)
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    os.execvpe(command[0], command, settings.child_environment())  # noqa: S606 - our own command


def _read_planning(path: Path) -> dict[str, Any]:
    try:
        return read_planning_file(path)
    except PlanningFileError as error:
        raise WrongSettingError(f"--planning: {error}") from error


def _check_profiles(settings: Settings) -> None:
    """Refuse profiles that cannot be used before the worker starts."""
    if settings.planning is None:
        return
    try:
        read_profiles(settings.planning.profiles)
    except ProfileFileError as error:
        raise WrongSettingError(f"planning.profiles: {error}") from error


def _check_folders(*folders: Path) -> None:
    """Refuse folders that are not there: a share that is not mounted must not look like an empty one."""
    for folder in folders:
        if not folder.is_dir():
            raise WrongSettingError(f"{folder} is not a folder; mount it, make it, or name another")
