"""Holds job kinds that hang, and that start processes, registered through the public hook."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from celery.exceptions import SoftTimeLimitExceeded

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import Store

Way = Literal["plain", "own group", "own session", "daemon", "deaf", "grandchildren"]

_SLEEPERS = {
    "plain": "pass",
    "own group": "os.setpgid(0, 0)",
    "own session": "os.setsid()",
    "daemon": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)",
    "deaf": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]",
    "grandchildren": "[os.fork() for _ in range(3)]; os.setsid() if os.getpid() != os.getpgid(0) else None",
}


class HangingPayload(Payload):
    """What a job starts, and how it hangs."""

    number: int = 0
    log: str | None = None
    """A file to append the job's number to when it starts, and again negated when it ends."""
    start: tuple[Way, ...] = ()
    """What it starts, one process or more each."""
    marker: str = ""
    """A word in the command lines of what it starts, to find that by."""
    hang: Literal["", "sleep", "in C", "handled"] = ""


def run(payloads: Sequence[HangingPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Do what each payload says."""
    for payload in payloads:
        _note(payload, payload.number)
        for way in payload.start:
            _start(way, payload.marker)
        _hang(payload)
        _note(payload, -payload.number)
        yield Done()


def _start(way: Way, marker: str) -> None:
    code = f"import os, signal, time; {_SLEEPERS[way]}; time.sleep(97)"
    subprocess.Popen([sys.executable, "-S", "-c", code, marker])


def _hang(payload: HangingPayload) -> None:
    match payload.hang:
        case "sleep":
            time.sleep(97)
        case "in C":
            # Holds the interpreter lock: no Python of this process runs meanwhile.
            ctypes.PyDLL(None).sleep(97)
        case "handled":
            try:
                time.sleep(97)
            except SoftTimeLimitExceeded:
                return


def run_at_once(payloads: Sequence[HangingPayload], grant: Grant, store: Store) -> Iterator[Outcome]:
    """Work on all payloads at once: none is done before all are."""
    yield from list(run(payloads, grant, store))


def _note(payload: HangingPayload, number: int) -> None:
    if payload.log is not None:
        with Path(payload.log).open("a") as log:
            log.write(f"{number}\n")


ESTIMATE = Estimate(memory_fixed_bytes=4 << 20, memory_per_item_bytes=1 << 20, max_batch=4)
KINDS = (
    Kind(name="hanging", version=1, stage="hanging", estimate=ESTIMATE, payload=HangingPayload, run=run),
    Kind(
        name="hanging.at_once",
        version=1,
        stage="hanging",
        estimate=ESTIMATE,
        payload=HangingPayload,
        run=run_at_once,
        window=lambda grant: grant.batch,
    ),
)
