"""Writes a project as COLMAP lays it out: images, database.db, sparse/<n>.

What stands in the database is decided in :mod:`tasks.colmap_database`.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pycolmap

from tasks.colmap_database import write_database
from tasks.colmap_inputs import database_images, database_pairs
from tasks.errors import ItemError, MissingArtefactError, ProjectError
from tasks.exports.models import models_of
from tasks.exports.target import fresh_folder
from tasks.model_files import check_room, write_model
from tasks.pairs import images_for_pairing
from tasks.store import Project, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmapExport:
    """What an export wrote, and what it had to leave out."""

    images: int
    models: int
    missing_photos: tuple[str, ...]
    """Names of photos that are gone or have changed since; all else of them is there."""


def export_colmap(store: Store, project_id: str, target: Path, *, link_photos: bool = False) -> ColmapExport:
    """Write ``target``/images/<name>, database.db and sparse/<n>/*.bin and *.txt.

    Photos are copied, so that nothing done to the export reaches the store;
    with ``link_photos`` they are symbolic links instead. ``target`` must not
    exist or be empty, and appears only when it is complete.

    Raises:
        ProjectError: no such project, not finished, or ``target`` is not empty.
    """
    project = store.project(project_id)
    _, models = models_of(store, project)
    with fresh_folder(target) as folder:
        missing = _write_photos(store, project, folder / "images", link_photos=link_photos)
        _write_database(store, project, folder / "database.db")
        for number, model in enumerate(models):
            _write_model(model, folder / "sparse" / str(number))
    return ColmapExport(
        images=len(images_for_pairing(project)), models=len(models), missing_photos=tuple(missing)
    )


def _write_photos(store: Store, project: Project, folder: Path, *, link_photos: bool) -> list[str]:
    """Write the photos under their names; return the names of those that are missing."""
    missing = []
    folder.mkdir()
    for image in images_for_pairing(project):
        try:
            source = store.photo_path(image.content).resolve()
        except (ItemError, MissingArtefactError):
            missing.append(image.name)
            continue
        photo = folder / image.name
        photo.parent.mkdir(parents=True, exist_ok=True)
        if link_photos:
            photo.symlink_to(source)
        else:
            shutil.copyfile(source, photo)
    return missing


def _write_database(store: Store, project: Project, path: Path) -> None:
    """Write the database on a local disk, then move it: SQLite's locks fail on many shares."""
    with tempfile.TemporaryDirectory(prefix="tiepoint-export-") as name:
        database = Path(name) / path.name
        try:
            write_database(
                database,
                database_images(store, project, with_descriptors=True),
                database_pairs(store, project, with_matches=True),
            )
        except MissingArtefactError as error:
            raise ProjectError(f"features or matches of {project.id} are lost; resume the project") from error
        shutil.copyfile(database, path)


def _write_model(model: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    reconstruction = pycolmap.Reconstruction(model)
    write_model(folder, reconstruction)
    reconstruction.write_text(folder)
    check_room(folder)
