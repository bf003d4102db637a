"""Runs the demo: render a flight with known cameras, reconstruct it, compare.

The scene is :mod:`tasks.demo_scene`'s, the run is the same as ``tiepoint run``'s.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pycolmap
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from tasks.demo_scene import PHOTOS_FOLDER, render_scene
from tasks.demo_truth import SceneTruth, compare_with_truth
from tasks.errors import ProjectError
from tasks.parameters import ProjectParameters
from tasks.reconstruction import model_folder
from worker.local_project import LocalProject, new_project, run_and_summarise
from worker.local_run import LocalOptions, RunError, check_machine

DEMO_PROJECT_FOLDER = "project"


def run_demo(folder: Path | None, options: LocalOptions, console: Console) -> dict[str, Any]:
    """Render, reconstruct and compare; photos and project go into the folder, or are thrown away.

    Raises:
        ProjectError: the folder is not empty.
        RunError: no camera could be compared with the truth.
        WrongSettingError: another worker has the machine; told before anything is rendered.
    """
    check_machine(options)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiepoint-demo-")))
        elif folder.exists() and any(folder.iterdir()):
            raise ProjectError(f"{folder} is not empty; name a new folder with --project")
        truth = _render(folder, console)
        photos = folder / PHOTOS_FOLDER
        local = stack.enter_context(
            new_project(folder / DEMO_PROJECT_FOLDER, photos, ProjectParameters(), link=False)
        )
        summary = run_and_summarise(local, options, console)
        return {**summary, "truth": _compare(local, truth)}


def _render(folder: Path, console: Console) -> SceneTruth:
    with Progress(console=console, disable=not console.is_terminal) as progress:
        row = progress.add_task("rendering a flight", total=None)
        return render_scene(folder, lambda done, total: progress.update(row, completed=done, total=total))


def _compare(local: LocalProject, truth: SceneTruth) -> dict[str, Any]:
    error = compare_with_truth(_camera_centres(local), truth)
    if error is None:
        raise RunError("no model has three cameras to compare with the truth")
    return {
        "centre_rms_m": error.centre_rms_m,
        "extent_m": error.extent_m,
        "compared_images": error.compared_images,
    }


def _camera_centres(local: LocalProject) -> dict[str, NDArray[Any]]:
    """Return the camera centres (3,) of the largest model by photo name; none where there is no model."""
    largest = model_folder(local.store, local.project) / "0"
    if not largest.is_dir():
        return {}
    model = pycolmap.Reconstruction(largest)
    return {image.name: image.projection_center() for image in model.images.values()}
