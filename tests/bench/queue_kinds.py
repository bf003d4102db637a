"""Holds the no-op kinds of the queue bench, registered through the public hook (TIEPOINT_KIND_MODULES)."""

from collections.abc import Iterator, Sequence

from governor.model import Estimate, Grant
from tasks.kind import Done, Kind, Outcome, Payload
from tasks.store import Store
from tests.bench.queue_body import do_nothing

MAX_BATCHES = (1, 8, 32)


class NoopPayload(Payload):
    """What the body of the bench takes."""

    note: str | None = None


def kind_name(max_batch: int) -> str:
    """Return the name of the kind with this largest batch."""
    return f"bench.noop{max_batch}"


def run(payloads: Sequence[NoopPayload], grant: Grant, store: Store) -> Iterator[Outcome]:  # noqa: ARG001
    """Run the body once per payload."""
    for payload in payloads:
        do_nothing(payload.note)
        yield Done()


def _kind(max_batch: int) -> Kind:
    return Kind(
        name=kind_name(max_batch),
        version=1,
        stage="bench",
        estimate=Estimate(memory_fixed_bytes=1 << 20, memory_per_item_bytes=1 << 14, max_batch=max_batch),
        payload=NoopPayload,
        run=run,
    )


KINDS = tuple(_kind(max_batch) for max_batch in MAX_BATCHES)
