"""Holds job kinds without work, registered through the public hook (TIEPOINT_KIND_MODULES)."""

import os
import signal
import time
from collections.abc import Iterator, Sequence

from governor.model import Estimate, Grant
from tasks.errors import Failure, Reason
from tasks.estimate_forms import EstimateForms
from tasks.kind import Done, Failed, Kind, Needs, Outcome, Payload
from tasks.store import Store

MIB = 1024 * 1024
OLD_ESTIMATE = Estimate(memory_fixed_bytes=MIB, io_slots=1)
"""What `noop.forms` accepts besides its own."""


class NoopPayload(Payload):
    """What a no-op job may be told to do."""

    number: int = 0
    log: str | None = None
    """A file to append one line to when the job runs."""
    sleep_seconds: float = 0.0
    allocate_bytes: int = 0
    kill_once: str | None = None
    """A file; where it is missing it is made and the child kills itself."""
    kill_always: bool = False
    kill_spawner: bool = False
    """Kill the process that starts all of a node's, always."""
    wants: str | None = None
    """A file; where it is missing the job fails."""
    fail: bool = False
    needs_bytes: int = 0
    """Ask for this much instead of running, where less was granted."""
    stubborn: bool = False
    """Ask for more without naming more, always."""


def run(payloads: Sequence[NoopPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Do what each payload says."""
    for payload in payloads:
        estimate = Estimate(memory_fixed_bytes=payload.needs_bytes)
        if payload.needs_bytes > grant.memory_bytes or payload.stubborn:
            yield Needs(estimate=estimate)
            continue
        _note(payload, len(payloads))
        time.sleep(payload.sleep_seconds)
        bytearray(payload.allocate_bytes)
        if payload.kill_always or _must_die_once(payload):
            os.kill(os.getpid(), signal.SIGKILL)
        if payload.kill_spawner:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)  # It dies with it.
        if payload.fail or (payload.wants is not None and not os.path.exists(payload.wants)):  # noqa: PTH110 - a name from a message
            failure = Failure(
                name=f"job {payload.number}", reason=Reason.UNREADABLE, cause="told to", cure="none"
            )
            yield Failed(failure=failure)
        else:
            yield Done()


def _note(payload: NoopPayload, batch: int) -> None:
    if payload.log is not None:
        with open(payload.log, "a") as log:  # noqa: PTH123 - append, one write
            log.write(f"{payload.number} {batch} {os.getpid()}\n")


def _must_die_once(payload: NoopPayload) -> bool:
    if payload.kill_once is None:
        return False
    try:
        os.close(os.open(payload.kill_once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _kind(
    name: str,
    max_batch: int,
    *,
    powers_of_two: bool = False,
    forms: EstimateForms | None = None,
    window: int = 1,
) -> Kind:
    return Kind(
        name=name,
        version=1,
        stage="noop",
        powers_of_two=powers_of_two,
        forms=forms,
        window=lambda _grant: window,
        estimate=Estimate(
            memory_fixed_bytes=4 * MIB, memory_per_item_bytes=MIB, max_batch=max_batch, io_slots=1
        ),
        payload=NoopPayload,
        run=run,
    )


KINDS = (
    _kind("noop", 1),
    _kind("noop.batch8", 8),
    _kind("noop.batch32", 32),
    _kind("noop.window4", 8, window=4),
    _kind("noop.powers", 8, powers_of_two=True),
    _kind("noop.forms", 1, forms=EstimateForms(old=(OLD_ESTIMATE,))),
)
