"""Holds the command ``worker``: checks the settings, then becomes one governed worker.

Does not cover what a worker does (:mod:`worker.puller`).
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.command_endings import plain_errors
from worker.command_options import CpusOption, MemoryOption, Profile, ProfileOption, read_bytes
from worker.node import check_partition
from worker.settings import Settings, WrongSettingError


def worker(
    broker: Annotated[str, typer.Option(help="redis://, rediss:// or redis+socket:// URL of the queue.")],
    store: Annotated[Path, typer.Option(help="Root of the project store.")],
    name: Annotated[str | None, typer.Option(help="Stable name of this node [default: host name]")] = None,
    memory: MemoryOption = None,
    cpus: CpusOption = None,
    profile: ProfileOption = Profile.INTERACTIVE,
    import_root: Annotated[list[Path] | None, typer.Option(help="Folder that photos may come from.")] = None,
) -> None:
    """Run one governed worker on this machine until it is told to stop."""
    values: dict[str, Any] = {"broker_url": broker, "store": store.resolve(), "profile": profile.value}
    values |= {"memory_bytes": read_bytes(memory), "cpus": cpus, "import_roots": tuple(import_root or ())}
    if name is not None:
        values["name"] = name
    with plain_errors():
        settings = Settings.checked(**values)
        check_partition(settings)
        _check_folders(settings.store, *settings.import_roots)
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    os.execvpe(command[0], command, settings.child_environment())  # noqa: S606 - our own command


def _check_folders(*folders: Path) -> None:
    """Refuse folders that are not there: a share that is not mounted must not look like an empty one."""
    for folder in folders:
        if not folder.is_dir():
            raise WrongSettingError(f"{folder} is not a folder; mount it, make it, or name another")
