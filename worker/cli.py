"""Holds the command line: ``tiepoint run | demo | worker | status | resume | export``.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with failures, 128 + n ended by
signal n (130 Ctrl-C).
Each command validates, calls one function elsewhere and shows the result.
"""

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from tasks.errors import ProjectError, TasksError
from tasks.expand import PHASES
from tasks.parameters import FeatureParameters, PairParameters, ProjectParameters
from tasks.summary import summarise
from worker.display import show_summary
from worker.embedded import ServerError
from worker.local_project import interrupted_project, new_project, open_project, run_and_summarise
from worker.local_run import LocalOptions, RunError
from worker.node import check_partition
from worker.settings import Settings, WrongSettingError

EXIT_FAILED, EXIT_USAGE, EXIT_WITH_FAILURES = 1, 2, 3
EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_TERMINATED = 129, 130, 143
_EXIT_OF_SIGNAL = {
    signal.SIGHUP: EXIT_HUNG_UP,
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
}

app = typer.Typer(
    name="tiepoint",
    help="Photos in, tie points and a sparse 3D model out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
errors = Console(stderr=True)


class Features(StrEnum):
    """Which features are extracted."""

    ROOTSIFT = "rootsift"
    SIFT = "sift"
    ORB = "orb"


class Pairs(StrEnum):
    """Which images are matched with which."""

    AUTO = "auto"
    EXHAUSTIVE = "exhaustive"
    SEQUENTIAL = "sequential"


class Profile(StrEnum):
    """How much of the machine jobs may take."""

    INTERACTIVE = "interactive"
    DEDICATED = "dedicated"


class Until(StrEnum):
    """The last phase to run."""

    IMPORT = PHASES[0]
    FEATURES = PHASES[1]
    MATCHING = PHASES[2]
    TRACKS = PHASES[3]
    MODEL = PHASES[4]


class ExportFormat(StrEnum):
    """What can be exported."""

    COLMAP = "colmap"
    PLY = "ply"


def _bytes(text: str | None) -> int | None:
    """Parse an amount of memory such as 4GiB, 512MiB, 8G or 1000000000."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?B?|B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text} is not an amount of memory; write it like 4GiB or 512MiB")
    power = " KMGT".index((match[2] or " ").upper())
    amount_bytes = int(float(match[1]) * 1024**power)
    if amount_bytes < 1:
        raise typer.BadParameter(f"{text} is not an amount of memory to run jobs in")
    return amount_bytes


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
CpusOption = Annotated[int | None, typer.Option(min=1, help="Use at most this many CPU threads.")]
MemoryOption = Annotated[str | None, typer.Option(help="Use at most this much RAM, e.g. 4GiB.")]
ProfileOption = Annotated[Profile, typer.Option(help="interactive leaves room for you, dedicated does not.")]
UntilOption = Annotated[Until, typer.Option(help="Stop after this phase.")]
ResultFolder = Annotated[Path | None, typer.Option(help="Folder for the results [default: NAME.tiepoint].")]
DemoFolder = Annotated[Path | None, typer.Option(help="Keep photos and results here [default: temporary].")]
FormatOption = Annotated[ExportFormat, typer.Option("--format", help="What to write.")]
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version.")]
ProjectFolder = Annotated[Path, typer.Argument(help="The project's folder.")]


@app.command()
def run(
    photos: Annotated[Path, typer.Argument(help="The folder with the photos.")],
    project: ResultFolder = None,
    features: Annotated[Features, typer.Option(help="Which features to use.")] = Features.ROOTSIFT,
    pairs: Annotated[Pairs, typer.Option(help="Which images are matched with which.")] = Pairs.AUTO,
    max_image_size: Annotated[
        int, typer.Option(min=64, max=65_535, help="Longer side for detection, in pixels.")
    ] = 3200,
    max_features: Annotated[int, typer.Option(min=1, max=8192, help="Features per image.")] = 8192,
    link: Annotated[bool, typer.Option(help="Leave the photos where they are instead of copying.")] = False,
    until: UntilOption = Until.MODEL,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    profile: ProfileOption = Profile.INTERACTIVE,
    as_json: JsonOption = False,
) -> None:
    """Make tie points and a sparse model from a folder of photos, on this machine."""
    parameters = ProjectParameters(
        features=FeatureParameters(
            extractor=features.value, max_image_size_px=max_image_size, max_features=max_features
        ),
        pairs=PairParameters(strategy=pairs.value),
    )
    options = _options(until, cpus, memory, profile)
    folder = project or Path(f"{photos.resolve().name}.tiepoint")
    with _resumable(folder), new_project(folder, photos, parameters, link=link) as local:
        if not local.is_new:
            _say(f"continuing the project in {folder}")
        summary = run_and_summarise(local, options, errors)
    _finish(summary, folder, until, as_json=as_json)


@app.command()
def resume(
    folder: ProjectFolder,
    until: UntilOption = Until.MODEL,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    profile: ProfileOption = Profile.INTERACTIVE,
    as_json: JsonOption = False,
) -> None:
    """Finish a project that was interrupted; failed items are tried again."""
    options = _options(until, cpus, memory, profile)
    with _resumable(folder), interrupted_project(folder) as local:
        summary = run_and_summarise(local, options, errors)
    _finish(summary, folder, until, as_json=as_json)


@app.command()
def status(folder: ProjectFolder, as_json: JsonOption = False) -> None:
    """Say how far a project is, from its folder alone."""
    with _plain_errors():
        local = open_project(folder)
        summary = summarise(local.store, local.project)
    _show(summary, as_json=as_json)


@app.command()
def export(
    folder: ProjectFolder,
    out: Annotated[Path, typer.Option(help="A new folder (colmap) or file (ply) to write.")],
    export_format: FormatOption = ExportFormat.COLMAP,
) -> None:
    """Write a project in a form that other programs open."""
    from tasks.exports.colmap import export_colmap  # noqa: PLC0415 - loads pycolmap, slow
    from tasks.exports.ply import export_ply  # noqa: PLC0415

    with _plain_errors():
        local = open_project(folder)
        if export_format is ExportFormat.COLMAP:
            done = export_colmap(local.store, local.project.id, out)
            for name in done.missing_photos:
                _say(f"{name}: the photo is gone or has changed, it is not in the export")
            _say(f"wrote {done.images} images and {done.models} models to {out}")
        else:
            for path in export_ply(local.store, local.project.id, out):
                _say(f"wrote {path}")


@app.command()
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
    values |= {"memory_bytes": _bytes(memory), "cpus": cpus, "import_roots": tuple(import_root or ())}
    if name is not None:
        values["name"] = name
    with _plain_errors():
        settings = Settings.checked(**values)
        check_partition(settings)
        _check_folders(settings.store, *settings.import_roots)
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    command += ["--hostname", f"{settings.name}@%h"]
    os.execvpe(command[0], command, settings.child_environment())  # noqa: S606 - our own command


@app.command()
def demo(
    project: DemoFolder = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Render a drone flight, reconstruct it, and compare the cameras with the truth."""
    from worker.demo import DEMO_PROJECT_FOLDER, run_demo  # noqa: PLC0415 - loads the renderer

    options = LocalOptions(cpus=cpus, memory_bytes=_bytes(memory), profile="dedicated")
    with _plain_errors(), _interruptible("run the demo again, in a new folder if you keep one"):
        summary = run_demo(project, options, errors)
    folder = project / DEMO_PROJECT_FOLDER if project is not None else None
    _finish(summary, folder, Until.MODEL, as_json=as_json)


@app.callback(invoke_without_command=True)
def _main(
    show_version: VersionOption = False,
) -> None:
    if show_version:
        typer.echo(version("tiepoint"))
        raise typer.Exit


def _check_folders(*folders: Path) -> None:
    """Refuse folders that are not there: a share that is not mounted must not look like an empty one."""
    for folder in folders:
        if not folder.is_dir():
            raise WrongSettingError(f"{folder} is not a folder; mount it, make it, or name another")


def _options(until: Until, cpus: int | None, memory: str | None, profile: Profile) -> LocalOptions:
    return LocalOptions(until=until.value, cpus=cpus, memory_bytes=_bytes(memory), profile=profile.value)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code."""
    try:
        yield
    except (ProjectError, WrongSettingError) as error:
        _say(f"error: {error}", style="red")
        raise typer.Exit(EXIT_USAGE) from error
    except (TasksError, ServerError, RunError) as error:
        _say(f"error: {error}", style="red")
        raise typer.Exit(EXIT_FAILED) from error


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Turn errors and interruptions of a run into a sentence that says how to go on."""
    go_on = f"`tiepoint resume {shlex.quote(str(folder))}` finishes the project"
    with _plain_errors(), _interruptible(go_on):
        yield


def _say(sentence: str, *, style: str | None = None) -> None:
    """Print a sentence as one line: names in it are no markup, and commands can be copied."""
    errors.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        show_summary(Console(), summary)


def _finish(summary: dict[str, Any], folder: Path | None, until: Until, *, as_json: bool) -> None:
    """Show a finished run, say where its results are and what comes next, and exit with its code."""
    _show(summary, as_json=as_json)
    if folder is not None and not as_json:
        _say(f"results in {folder}; {_next_step(folder, until)}")
    if summary["failures"]:
        raise typer.Exit(EXIT_WITH_FAILURES if summary["images"]["imported"] else EXIT_FAILED)


def _next_step(folder: Path, until: Until) -> str:
    quoted = shlex.quote(str(folder))
    if until is not Until.MODEL:
        return f"`tiepoint resume {quoted}` does the rest"
    return f"`tiepoint export {quoted} --out FOLDER` writes them for COLMAP"


class Interrupted(BaseException):
    """A signal asks us to end; everything is left as after an error."""

    go_on = ""
    """How to go on afterwards."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = _EXIT_OF_SIGNAL[signal.Signals(signum)]


@contextmanager
def _interruptible(go_on: str) -> Iterator[None]:
    """Note how the user goes on if a signal ends the block."""
    try:
        yield
    except Interrupted as interruption:
        interruption.go_on = go_on
        raise


def _interrupt(signum: int, _frame: FrameType | None) -> None:
    # One is enough: a second (a closed terminal sends several) must not stop the cleaning up.
    for other in _EXIT_OF_SIGNAL:
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(signum)


def main() -> None:
    """Run the command line; SIGINT, SIGTERM and SIGHUP end it with nothing left behind."""
    for signum in _EXIT_OF_SIGNAL:
        # Ignored from the start stays ignored: that is what nohup is for.
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)
    try:
        app()
    except Interrupted as interruption:
        with suppress(OSError):  # The terminal may be gone.
            _say("; ".join(filter(None, ("interrupted", interruption.go_on))))
        sys.exit(interruption.exit_code)


if __name__ == "__main__":
    main()
