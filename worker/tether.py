"""Runs a command that dies with the process that started it, however that ends.

``python -P -m worker.tether PARENT_PID COMMAND...`` asks the kernel for the
death signal, then becomes the command. Start it from a main thread: the signal
follows the forking thread.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from worker.process import die_with_parent, signal_name


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[Any],
) -> "subprocess.Popen[bytes]":
    """Start a command in a session of its own, so that the terminal's Ctrl-C reaches only us."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "worker.tether", str(os.getpid()), *command],
        env=dict(environment) if environment is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def how_it_ended(returncode: int) -> str:
    """Return the end of a command in words; a negative return code is a signal."""
    if returncode < 0:
        return f"killed by {signal_name(-returncode)}"
    return f"exit status {returncode}"


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the command is our own
