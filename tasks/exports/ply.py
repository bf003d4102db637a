"""Writes the points of a project's models as PLY files."""

import tempfile
from pathlib import Path

import pycolmap

from tasks.errors import ProjectError
from tasks.exports.models import models_of
from tasks.model_files import check_room
from tasks.store import Store


def export_ply(store: Store, project_id: str, target: Path) -> list[Path]:
    """Write the best model's points to ``target``, further models beside it as <stem>-1.ply, ...

    Binary little endian: float x y z, uchar red green blue. Returns the files
    written; existing ones are never replaced.

    Raises:
        ProjectError: no such project, not finished, without a model, or a file is there already.
    """
    report, models = models_of(store, store.project(project_id))
    if not models:
        raise ProjectError(f"project {project_id} has no model: {report.reason}")
    further = (target.with_stem(f"{target.stem}-{number}") for number in range(1, len(models)))
    files = [target, *further]
    taken = [str(file) for file in files if file.exists()]
    if taken:
        raise ProjectError(f"{', '.join(taken)} exists; choose another name, nothing is ever overwritten.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for model, file in zip(models, files, strict=True):
            _write(model, file)
    except OSError as error:
        raise ProjectError(f"{target.parent} cannot be written: {error.strerror}") from error
    return files


def _write(model: Path, file: Path) -> None:
    """Write one file, which appears under its name only when it is whole."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as folder:
        whole = Path(folder) / "points.ply"
        pycolmap.Reconstruction(model).export_PLY(whole)
        check_room(whole.parent)
        whole.rename(file)
