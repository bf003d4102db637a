"""Holds how commands name a cluster and its projects.

Does not cover what they do with them.
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tasks.errors import StoreError
from tasks.store import Store
from worker.client import Client
from worker.local_project import PROJECT_ID
from worker.settings import Settings, WrongSettingError

BrokerOption = Annotated[
    str | None, typer.Option(help="URL of the cluster's queue (default: TIEPOINT_BROKER_URL).")
]
StoreOption = Annotated[
    Path | None,
    typer.Option(help="Root of the cluster's store, as this machine sees it (default: TIEPOINT_STORE)."),
]


def require_queue(settings: Settings) -> None:
    """Check that a queue was named, by an option or in the environment.

    Raises:
        WrongSettingError: none was.
    """
    if "broker_url" not in settings.model_fields_set:
        raise WrongSettingError("which queue? name it with --broker or TIEPOINT_BROKER_URL")


def cluster(broker: str | None, store: Path | None) -> Client:
    """Return a client of the cluster that the options, or else the environment, name.

    Raises:
        WrongSettingError: neither says which, or the store is not seen from here.
    """
    given = {"broker_url": broker, "store": store}
    settings = Settings.checked(**{name: value for name, value in given.items() if value is not None})
    require_queue(settings)
    if "store" not in settings.model_fields_set:
        raise WrongSettingError("which store? name it with --store or TIEPOINT_STORE")
    if not settings.store.is_dir():
        raise WrongSettingError(
            f"{settings.store} is not a folder on this machine; the store is a folder that this machine and "
            "all nodes see: mount it here, or name another with --store"
        )
    return Client(settings.broker_url, settings.store, kind_modules=settings.kind_modules)


def store_of_cluster(project: str, store: Path | None) -> Path | None:
    """Return the store whose project is meant; None where it is a folder of its own.

    With ``--store`` it is a project of that store. Without, a folder is a folder, and any other plain name a
    project of the store in the environment; so is that of a folder of photos, submitted under its own name.
    """
    if store is not None:
        return store
    folder = Path(project)
    if folder.name != project or (folder.exists() and Store(folder).project(PROJECT_ID).exists()):
        return None
    settings = Settings.checked()
    if "store" not in settings.model_fields_set:
        return None
    is_meant = not folder.exists() or _holds(settings.store, project)
    return settings.store if is_meant else None


def _holds(store: Path, project: str) -> bool:
    """Tell whether a store holds a project; one that is not there holds none, and a folder stays a folder."""
    with suppress(StoreError):
        return project in Store(store).project_ids()
    return False
