"""Holds job kinds of which one takes nearly all of a small node, and the other less than half; no work."""

from governor.model import Estimate
from tasks.kind import Kind
from tests.integration.sharing_kinds import MIB, SharingPayload, run

NODE_BYTES = 1536 * MIB
"""A node's memory; a third of it stays free, so 1024 MiB are for jobs."""


def _kind(name: str, memory_bytes: int) -> Kind:
    estimate = Estimate(memory_fixed_bytes=memory_bytes)
    return Kind(name=name, version=1, stage="noop", estimate=estimate, payload=SharingPayload, run=run)


KINDS = (
    _kind("drain.small", 400 * MIB),
    _kind("drain.whole", 900 * MIB),
)
