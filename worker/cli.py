"""Holds the command line's entry: the list of commands, and how a signal ends them.

The commands themselves are in ``local_commands``, ``project_commands``,
``cluster_commands`` and ``worker_command``, their shared options in
``command_options``, exit codes and error wording in ``command_endings``.
"""

import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from worker import (
    calibrate_command,
    cluster_commands,
    dead_command,
    doctor_command,
    factors_command,
    flower_command,
    local_commands,
    node_command,
    project_commands,
    ramp_command,
    simulate_command,
    worker_command,
)
from worker.command_endings import Interrupted, heed_signals, say

app = typer.Typer(
    name="tiepoint",
    help="Photos in, tie points and a sparse 3D model out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version.")]

for command in (
    local_commands.run,
    project_commands.resume,
    project_commands.status,
    project_commands.export,
    cluster_commands.submit,
    cluster_commands.watch,
    cluster_commands.cancel,
    cluster_commands.retry,
    cluster_commands.explain,
    dead_command.dead,
    worker_command.worker,
    node_command.node,
    factors_command.factors,
    doctor_command.doctor,
    flower_command.flower,
    simulate_command.simulate,
    local_commands.demo,
):
    app.command()(command)
app.command("calibrate")(calibrate_command.calibrate_command)
app.command("ramp")(ramp_command.ramp_command)


@app.callback(invoke_without_command=True)
def _main(
    show_version: VersionOption = False,
) -> None:
    if show_version:
        typer.echo(version("tiepoint"))
        raise typer.Exit


def main() -> None:
    """Run the command line; SIGINT, SIGTERM and SIGHUP end it with nothing left behind."""
    heed_signals()
    try:
        app()
    except Interrupted as interruption:
        with suppress(OSError):  # The terminal may be gone.
            say("; ".join(filter(None, ("interrupted", interruption.go_on))))
        sys.exit(interruption.exit_code)


if __name__ == "__main__":
    main()
