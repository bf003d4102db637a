"""Holds a job kind that takes more memory than it says, registered through the public hook."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import Store

MIB = 1024 * 1024
STEP_BYTES = 16 * MIB
ESTIMATE = Estimate(memory_fixed_bytes=4 * MIB, memory_per_item_bytes=4 * MIB, max_batch=4)


class HungryPayload(Payload):
    """What a hungry job takes, and what it waits for."""

    number: int
    log: str
    """A file to append `number batch reserved_bytes` to when the job runs."""
    take_bytes: int = 0
    refused: bool = False
    """The memory is refused when it is asked for, instead of taken away later."""
    start_sleeper: str | None = None
    """A file for the process id of a process that the job starts, and then waits for."""


def run(payloads: Sequence[HungryPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Take what each payload says."""
    for payload in payloads:
        _note_run(payload, grant)
        if payload.start_sleeper is not None:
            sleeper = subprocess.Popen(["sleep", "600"])  # noqa: S607 - whatever sleep there is
            Path(payload.start_sleeper).write_text(str(sleeper.pid))
            sleeper.wait()
        if payload.refused and grant.memory_bytes < payload.take_bytes:
            raise MemoryError
        _take(payload.take_bytes)
        yield Done()


def _note_run(payload: HungryPayload, grant: Grant) -> None:
    with open(payload.log, "a") as log:  # noqa: PTH123 - append, one write
        log.write(f"{payload.number} {grant.batch} {grant.memory_bytes}\n")


def _take(take_bytes: int) -> None:
    """Take memory step by step, each page written to."""
    taken: list[bytes] = []
    while len(taken) * STEP_BYTES < take_bytes:
        taken.append(b"\1" * STEP_BYTES)


KINDS = (Kind(name="hungry", version=1, stage="hungry", estimate=ESTIMATE, payload=HungryPayload, run=run),)
