"""Holds a job kind that publishes artefacts and does nothing else (TIEPOINT_KIND_MODULES)."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import ArtefactKey, Store, artefact_key

MIB = 1024 * 1024
KIND_NAME = "noop.publish"


class PublishPayload(Payload):
    """Which artefact to publish."""

    number: int
    kib: int = 512
    sleep_seconds: float = 0.0
    """Before it publishes."""
    started_file: str = ""
    """Made when it starts."""


def key_of(number: int) -> ArtefactKey:
    """Return the name of a job's artefact."""
    return artefact_key(kind="noop", version=1, parameters={"number": number}, inputs=())


def content_of(number: int, kib: int = 512) -> np.ndarray:
    """Return what a job's artefact holds."""
    return np.random.default_rng(number).integers(0, 256, kib * 1024, dtype=np.uint8)


def run(payloads: Sequence[PublishPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Publish the artefact of each payload."""
    for payload in payloads:
        if payload.started_file:
            Path(payload.started_file).touch()
        time.sleep(payload.sleep_seconds)
        store.publish(key_of(payload.number), {"content": content_of(payload.number, payload.kib)}, {})
        yield Done()


KINDS = (
    Kind(
        name=KIND_NAME,
        version=1,
        stage="noop",
        estimate=Estimate(memory_fixed_bytes=8 * MIB, memory_per_item_bytes=4 * MIB, max_batch=2),
        payload=PublishPayload,
        run=run,
    ),
)
