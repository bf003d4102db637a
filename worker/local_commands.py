"""Holds the commands that work on this machine alone: ``run``, ``demo``, and the ``resume`` of a folder.

Each validates, calls one function elsewhere and shows the result. Does not
cover clusters (:mod:`worker.cluster_commands`).
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tasks.photo_places import check_places
from worker.command_endings import errors, exit_with_failures, interruptible, plain_errors, say, show
from worker.command_options import (
    CpusOption,
    Features,
    FeaturesOption,
    JsonOption,
    LinkOption,
    Matcher,
    MatcherOption,
    MaxFeaturesOption,
    MaxImageSizeOption,
    MemoryOption,
    Pairs,
    PairsOption,
    PhotosArgument,
    Profile,
    ProfileOption,
    Until,
    UntilOption,
    project_parameters,
    read_bytes,
)
from worker.gpu_backend import check_this_machine
from worker.local_project import interrupted_project, new_project, run_and_summarise
from worker.local_run import LocalOptions

ResultFolder = Annotated[Path | None, typer.Option(help="Folder for the results (default: NAME.tiepoint).")]
DemoFolder = Annotated[Path | None, typer.Option(help="Keep photos and results here (default: temporary).")]


def run(
    photos: PhotosArgument,
    project: ResultFolder = None,
    features: FeaturesOption = Features.ROOTSIFT,
    pairs: PairsOption = Pairs.AUTO,
    max_image_size: MaxImageSizeOption = 3200,
    max_features: MaxFeaturesOption = 8192,
    matcher: MatcherOption = Matcher.CPU,
    link: LinkOption = False,
    until: UntilOption = Until.MODEL,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    profile: ProfileOption = Profile.INTERACTIVE,
    as_json: JsonOption = False,
) -> None:
    """Make tie points and a sparse model from a folder of photos, on this machine."""
    options = _options(until, cpus, memory, profile)
    folder = project or Path(f"{photos.resolve().name}.tiepoint")
    with plain_errors():
        parameters = project_parameters(
            features, pairs, max_image_size_px=max_image_size, max_features=max_features, matcher=matcher
        )
        check_this_machine(parameters)
        warning = check_places(photos, parameters.pairs)
    with _resumable(folder), new_project(folder, photos, parameters, link=link) as local:
        if warning:
            say(warning)
        if not local.is_new:
            say(f"continuing the project in {folder}")
        summary = run_and_summarise(local, options, errors)
    _finish(summary, folder, until, as_json=as_json)


def resume_folder(
    folder: Path, until: Until, cpus: int | None, memory: str | None, profile: Profile, *, as_json: bool
) -> None:
    """Finish the project of a folder; called by ``resume`` (:mod:`worker.project_commands`)."""
    options = _options(until, cpus, memory, profile)
    with _resumable(folder), interrupted_project(folder) as local:
        check_this_machine(local.project.parameters)
        summary = run_and_summarise(local, options, errors)
    _finish(summary, folder, until, as_json=as_json)


def demo(
    project: DemoFolder = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Render a drone flight, reconstruct it, and compare the cameras with the truth."""
    from worker.demo import DEMO_PROJECT_FOLDER, run_demo  # noqa: PLC0415 - loads the renderer

    options = LocalOptions(cpus=cpus, memory_bytes=read_bytes(memory), profile="dedicated")
    with plain_errors(), interruptible("run the demo again, in a new folder if you keep one"):
        summary = run_demo(project, options, errors)
    folder = project / DEMO_PROJECT_FOLDER if project is not None else None
    _finish(summary, folder, Until.MODEL, as_json=as_json)


def _options(until: Until, cpus: int | None, memory: str | None, profile: Profile) -> LocalOptions:
    return LocalOptions(until=until.value, cpus=cpus, memory_bytes=read_bytes(memory), profile=profile.value)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Turn errors and interruptions of a run into a sentence that says how to go on."""
    go_on = f"`tiepoint resume {shlex.quote(str(folder))}` finishes the project"
    with plain_errors(), interruptible(go_on):
        yield


def _finish(summary: dict[str, Any], folder: Path | None, until: Until, *, as_json: bool) -> None:
    """Show a finished run, say where its results are and what comes next, and exit with its code."""
    show(summary, as_json=as_json)
    if folder is not None and not as_json:
        say(f"results in {folder}; {_next_step(folder, until)}")
    exit_with_failures(summary)


def _next_step(folder: Path, until: Until) -> str:
    quoted = shlex.quote(str(folder))
    if until is not Until.MODEL:
        return f"`tiepoint resume {quoted}` does the rest"
    return f"`tiepoint export {quoted} --out FOLDER` writes them for COLMAP"
