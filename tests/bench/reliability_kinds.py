"""Holds the kinds of the reliability bench, registered through the public hook (TIEPOINT_KIND_MODULES)."""

from collections.abc import Iterator, Sequence

import numpy as np

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import Store
from tasks.store.keys import ArtefactKey, artefact_key
from tests.bench.reliability_body import work

ONE, FOUR = "bench.one", "bench.four"
"""Names of the kinds, with their largest batches; stock knows tasks of the same names."""
NAMES = (ONE, FOUR)


class BenchPayload(Payload):
    """What the body of the bench takes."""

    job: int
    log: str
    seconds: float = 0.0
    gate: str | None = None
    kills_itself: bool = False
    starts_sleeper: bool = False


def result_key(job: int) -> ArtefactKey:
    """Return the name of a job's artefact."""
    return artefact_key("bench.result", 1, {"job": job}, [])


def run(payloads: Sequence[BenchPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Run the body once per payload, and publish a result of each."""
    for payload in payloads:
        work(**payload.model_dump())
        store.publish(result_key(payload.job), {"job": np.array([payload.job])}, {})
        yield Done()


def _kind(name: str, max_batch: int) -> Kind:
    return Kind(
        name=name,
        version=1,
        stage="match",
        estimate=Estimate(memory_fixed_bytes=1 << 22, memory_per_item_bytes=1 << 20, max_batch=max_batch),
        payload=BenchPayload,
        run=run,
    )


KINDS = (_kind(ONE, 1), _kind(FOUR, 4))
