"""Holds the body that both sorts of worker run in the reliability bench: it tells each step.

One line per step goes to the end of a file, by one write: so starts and ends
are counted from what has happened, and from nothing that a queue says. Imports
nothing of Tiepoint, so that the stock worker runs without it.
"""

import os
import signal
import subprocess
import time

NODE = "BENCH_NODE"
"""The variable that names the node to its processes."""
START, END, LEFT_BEHIND = "start", "end", "left"
_POLL_SECONDS = 0.01


def work(
    *,
    job: int,
    log: str,
    seconds: float = 0.0,
    gate: str | None = None,
    kills_itself: bool = False,
    starts_sleeper: bool = False,
) -> None:
    """Do one job.

    ``gate``: a file to wait for; ``kills_itself``: by SIGKILL, as the kernel
    would; ``starts_sleeper``: start two programs, the second in a session of
    its own, and wait for it.
    """
    note(log, START, job, os.getpid())
    if starts_sleeper:
        for leaves_group in (False, True):
            sleeper = subprocess.Popen(["sleep", "97"], start_new_session=leaves_group)  # noqa: S607 - any
            note(log, LEFT_BEHIND, job, sleeper.pid)
        sleeper.wait()
    time.sleep(seconds)
    while gate is not None and not os.path.exists(gate):  # noqa: PTH110 - many times
        time.sleep(_POLL_SECONDS)
    if kills_itself:
        os.kill(os.getpid(), signal.SIGKILL)
    note(log, END, job, os.getpid())


def note(log: str, step: str, job: int, pid: int) -> None:
    """Append one line; several processes may do so at once."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{step} {job} {os.environ.get(NODE, '-')} {pid} {time.monotonic_ns()}\n".encode())
    os.close(fd)
