"""Holds the kind ``matcher.run.gpu``: ORB matches, found on the node's GPU one pair after the other.

It publishes what ``matcher.run`` publishes, byte for byte and under the same
names. Whether a pair comes here is decided when its job is planned; which
nodes take such jobs, by :mod:`worker.gpu_backend`. How descriptors are compared
is in :mod:`tasks.gpu_matching_kernel`.
"""

import logging
from collections.abc import Iterator, Sequence

from governor.model import Estimate, Grant
from tasks.estimate_forms import EstimateForms
from tasks.gpu_matching_kernel import check_device, match_orb_on_gpu
from tasks.kind import Kind, Outcome
from tasks.matching import Descriptors, Matches, compare_on_cpu, match_pair, publish_matches
from tasks.old_estimates import OLD_ESTIMATES
from tasks.opencl import OpenClError, device_name, opencl
from tasks.pair_jobs import GPU_MATCH_KIND, MATCH_STAGE, MATCH_VERSION, GpuMatchPayload, MatchPayload
from tasks.participants import single_threaded_libraries
from tasks.store import Store

log = logging.getLogger(__name__)


class _Comparison:
    """Compares on the GPU until that fails, then on the CPU: one batch, one thread."""

    def __init__(self) -> None:
        self._gpu_has_failed = False

    def __call__(self, left: Descriptors, right: Descriptors, payload: MatchPayload) -> Matches:
        if not self._gpu_has_failed:
            try:
                with opencl():
                    return match_orb_on_gpu(
                        left, right, ratio=payload.matching.ratio, cross_check=payload.matching.cross_check
                    )
            except OpenClError as error:
                self._gpu_has_failed = True
                log.warning("the GPU failed, the batch goes on on the CPU: %s", error)
        return compare_on_cpu(left, right, payload)


def run_gpu_matching(payloads: Sequence[GpuMatchPayload], _grant: Grant, store: Store) -> Iterator[Outcome]:
    """Match every pair in turn and publish ``matches``: uint32 (M, 2), feature indices, sorted."""
    compare = _Comparison()
    for payload in payloads:
        with single_threaded_libraries():
            matches = match_pair(payload, store, compare)
        yield publish_matches(payload, matches, store)


def usable_device() -> str:
    """Return the name of the OpenCL device that this process can match on.

    Raises:
        OpenClError: there is none, or it computes something wrong.
    """
    with opencl():
        check_device()
        return device_name()


def _warm_up() -> None:
    # Driver and kernels stay in the process: more than a batch is granted.
    try:
        usable_device()
    except OpenClError as error:
        log.warning("the GPU cannot be used, its jobs run on the CPU: %s", error)


KINDS = (
    Kind(
        name=GPU_MATCH_KIND,
        version=MATCH_VERSION,
        stage=MATCH_STAGE,
        estimate=Estimate(
            memory_per_item_bytes=10 << 20,
            gpu_memory_fixed_bytes=640 << 10,
            max_batch=8,
            gpu_slots=1,
            io_slots=1,
        ),
        forms=EstimateForms(old=OLD_ESTIMATES[GPU_MATCH_KIND]),
        payload=GpuMatchPayload,
        run=run_gpu_matching,
        powers_of_two=True,
        warm_up=_warm_up,
        needs_opencl=True,
    ),
)
