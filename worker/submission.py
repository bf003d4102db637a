"""Makes a project on a cluster's store out of photos, and checks that the nodes can work on it.

Does not cover starting it (:mod:`worker.client`) nor projects of one machine
(:mod:`worker.local_project`).
"""

import os
import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from tasks.errors import ProjectError
from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Project, Source, Store
from worker.live_nodes import LiveNode, names_of, on_other_stores, unseen_by_all, unseen_by_some

_LONGEST_NAME = 64
_ROOM_FOR_A_NUMBER = 5
_MOST_FOLDERS = 3
"""Named in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to become a project."""

    sources: tuple[Source, ...]
    parameters: ProjectParameters
    link: bool = False


def photos_of(photos: Path | Sequence[Path], store: Store) -> tuple[Source, ...]:
    """Return the photos of a folder, or those listed; what lies in the store is named relative to it.

    So the nodes find it there wherever they have mounted the store.

    Raises:
        ProjectError: no photos, or one of the list is not there.
    """
    found = find_photos(photos) if isinstance(photos, Path) else _listed(photos)
    root = store.root.resolve()
    return tuple(
        replace(source, path=Path(source.path).relative_to(root).as_posix())
        if Path(source.path).is_relative_to(root)
        else source
        for source in found
    )


def _listed(photos: Sequence[Path]) -> tuple[Source, ...]:
    places = [Path(os.path.abspath(photo)) for photo in photos]  # noqa: PTH100 - links keep their names
    missing = next((place for place in places if not place.is_file()), None)
    if missing is not None or not places:
        raise ProjectError(f"{missing} is not a file" if missing else "there is no photo in the list")
    folder = os.path.commonpath([place.parent for place in places])
    sources = (
        Source(name=place.relative_to(folder).as_posix(), path=str(place.resolve())) for place in places
    )
    return tuple(sorted(sources))


def name_for(photos: Path | Sequence[Path]) -> str:
    """Return the name that a project of these photos gets where nobody gives one: their folder's."""
    folder = photos if isinstance(photos, Path) else Path(os.path.commonpath([p.parent for p in photos]))
    # Letters lose their accents, however a system has stored them.
    plain = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", folder.resolve().name.casefold()))
    name = re.sub(r"[^a-z0-9._-]+", "-", plain).lstrip("._-")
    return name[: _LONGEST_NAME - _ROOM_FOR_A_NUMBER].rstrip("-") or "project"


def make_project(store: Store, wanted: Wanted, *, name: str | None, default_name: str) -> Project:
    """Create a project, or find the same one; without a name, one is made that no other project has.

    Raises:
        ProjectError: a project of that name has other photos or parameters.
    """
    if name is not None:
        project = store.project(name)
        _create(project, wanted)
        return project
    for candidate in _numbered(default_name):
        project = store.project(candidate)
        try:
            _create(project, wanted)
        except ProjectError:
            if project.path.exists():
                continue  # Another project's name.
            raise
        return project
    raise ProjectError("no name is free")


def _create(project: Project, wanted: Wanted) -> None:
    try:
        project.create(wanted.parameters, wanted.sources, link=wanted.link)
    except ProjectError as error:
        if not project.exists():
            raise
        raise ProjectError(
            f"there is a project {project.id} with other photos or parameters; "
            f"choose another name, or go on with it: tiepoint resume {shlex.quote(project.id)}"
        ) from error


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def check_nodes(nodes: Sequence[LiveNode], store: Store, sources: Sequence[Source], *, link: bool) -> None:
    """Refuse what the nodes that are alive could not work on; without any the project may wait.

    Raises:
        ProjectError: a node works on another store, or none may read some of the photos.
    """
    if not nodes:
        return
    strangers = on_other_stores(nodes, store.identity())
    if strangers:
        raise ProjectError(_on_another_store(strangers, store))
    paths = [source.path for source in sources]
    unseen = unseen_by_all(nodes, paths)
    if unseen:
        raise ProjectError(
            f"no live node may import from {_listed_folders(unseen)} (alive: {names_of(nodes)}): "
            f"start a worker with {_import_roots(unseen)}, or put the photos under the store ({store.root})"
        )
    blind = unseen_by_some(nodes, paths) if link else []
    if blind:
        raise ProjectError(
            f"linked photos are read by every node, and {names_of(blind)} may not read them: start it with "
            f"{_import_roots(_unseen_by_any(blind, paths))}, or submit without --link"
        )


def check_matcher(nodes: Sequence[LiveNode], parameters: ProjectParameters) -> None:
    """Refuse to match on a GPU where no live node can; without any the project may wait.

    Raises:
        ProjectError: that is wanted, and none can.
    """
    if parameters.execution.matcher != "gpu" or not nodes or any(node.gpu_matching for node in nodes):
        return
    raise ProjectError(
        f"no live node can match on a GPU (alive: {names_of(nodes)}): start a worker on a machine with a "
        "graphics card and its OpenCL driver, or submit with --matcher cpu"
    )


def _on_another_store(strangers: Sequence[LiveNode], store: Store) -> str:
    where = ", ".join(f"{node.name} ({node.store or 'a store it cannot write'})" for node in strangers)
    return (
        f"these nodes work on another store than {store.root}: {where}; "
        "start them with this store as --store, or name theirs"
    )


def _unseen_by_any(nodes: Sequence[LiveNode], paths: Sequence[str]) -> list[str]:
    return sorted({path for node in nodes for path in unseen_by_all([node], paths)})


def _listed_folders(paths: Sequence[str]) -> str:
    folders = _folders_of(paths)
    more = f" and {len(folders) - _MOST_FOLDERS} other folders" if len(folders) > _MOST_FOLDERS else ""
    return ", ".join(folders[:_MOST_FOLDERS]) + more


def _import_roots(paths: Sequence[str]) -> str:
    return " ".join(f"--import-root {shlex.quote(folder)}" for folder in _folders_of(paths)[:_MOST_FOLDERS])


def _folders_of(paths: Sequence[str]) -> list[str]:
    """Return the folder that photos lie in; several where they share nothing but the root of all."""
    folders = sorted({os.path.dirname(path) for path in paths})  # noqa: PTH120 - texts of other machines
    common = os.path.commonpath(folders)
    return [common] if common != "/" else folders
