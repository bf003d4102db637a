"""Holds job kinds that note which node ran them, in what batch and when; without work of their own."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import Store

MIB = 1024 * 1024
_LONGEST_WAIT_SECONDS = 30.0


class SharingPayload(Payload):
    """What such a job is told."""

    number: int
    log: str
    """A file to append one line to when the job starts."""
    wait_for_nodes: int = 0
    """Go on when this many nodes are in the log."""
    wait_for_file: str | None = None
    """Go on when this file is there."""
    sleep_seconds: float = 0.0


def run(payloads: Sequence[SharingPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Note each payload, then wait as it says."""
    node = os.environ["TIEPOINT_NAME"]
    for payload in payloads:
        line = f"{payload.number} {node} {len(payloads)} {grant.cpu_threads} {time.monotonic_ns()}\n"
        with open(payload.log, "a") as log:  # noqa: PTH123 - append, one write
            log.write(line)
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        while not _may_go_on(payload) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(payload.sleep_seconds)
        yield Done()


def _may_go_on(payload: SharingPayload) -> bool:
    is_there = payload.wait_for_file is None or Path(payload.wait_for_file).exists()
    nodes = {line.split()[1] for line in Path(payload.log).read_text().splitlines()}
    return is_there and len(nodes) >= payload.wait_for_nodes


def _kind(name: str, *, max_batch: int = 1, cpu_threads: int = 1) -> Kind:
    estimate = Estimate(
        memory_fixed_bytes=4 * MIB,
        memory_per_item_bytes=MIB,
        max_batch=max_batch,
        cpu_threads=cpu_threads,
        io_slots=1,
    )
    return Kind(name=name, version=1, stage="noop", estimate=estimate, payload=SharingPayload, run=run)


KINDS = (
    _kind("share.batch8", max_batch=8),
    _kind("share.threads", cpu_threads=64),
)
