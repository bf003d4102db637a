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
        settings = Settings.checked(**{key: value for key, value in options.items() if value is not None})
        settings = settings.model_copy(update={"store": settings.store.resolve()})
        check_partition(settings)
        _check_folders(settings.store, *settings.import_roots)
        check_entry(settings)
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    os.execvpe(command[0], command, settings.child_environment())  # noqa: S606 - our own command


def _check_folders(*folders: Path) -> None:
    """Refuse folders that are not there: a share that is not mounted must not look like an empty one."""
    for folder in folders:
        if not folder.is_dir():
            raise WrongSettingError(f"{folder} is not a folder; mount it, make it, or name another")
