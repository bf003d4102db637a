"""Holds a job kind that wants the GPU and computes nothing, for TIEPOINT_KIND_MODULES."""

from governor.model import Estimate
from tasks.kind import Kind
from tests.integration.noop_kinds import KINDS as NOOP_KINDS
from tests.integration.noop_kinds import MIB, NoopPayload, run

GPU_BYTES = 4 * 1024 * MIB

KINDS = (
    *NOOP_KINDS,
    Kind(
        name="noop.gpu",
        version=1,
        stage="noop",
        estimate=Estimate(memory_fixed_bytes=4 * MIB, gpu_memory_fixed_bytes=GPU_BYTES, gpu_slots=1),
        payload=NoopPayload,
        run=run,
    ),
)
