"""Holds the estimates that jobs of former times carry: the forms that the owner's program once stored.

A job that carries one of them, byte for byte, is run under its kind's current
estimate (:mod:`tasks.estimate_forms`); docs/adr/0057 says which form is from where.
"""

from collections.abc import Mapping
from dataclasses import replace

from governor.model import Estimate

_KIB, _MIB = 1 << 10, 1 << 20


def _pairs(*, fixed_bytes: int, cpu_threads: int) -> Estimate:
    return Estimate(
        memory_fixed_bytes=fixed_bytes,
        memory_per_item_bytes=64 * _KIB,
        max_batch=64,
        cpu_threads=cpu_threads,
        io_slots=1,
    )


def _matcher(*, fixed_bytes: int = 0, per_item_bytes: int = 0) -> Estimate:
    return Estimate(
        memory_fixed_bytes=fixed_bytes,
        memory_per_item_bytes=per_item_bytes,
        max_batch=8,
        cpu_threads=12,
        io_slots=1,
    )


def _gpu_matcher(*, fixed_bytes: int = 0, per_item_bytes: int = 0) -> Estimate:
    return replace(
        _matcher(fixed_bytes=fixed_bytes, per_item_bytes=per_item_bytes),
        gpu_memory_fixed_bytes=640 * _KIB,
        gpu_slots=1,
    )


OLD_ESTIMATES: Mapping[str, tuple[Estimate, ...]] = {
    "import.images": (
        Estimate(memory_fixed_bytes=128 * _KIB, memory_per_item_bytes=319, max_batch=32, io_slots=1),
    ),
    "features.extract.sift": (
        Estimate(memory_fixed_bytes=64 * _MIB, memory_per_item_bytes=1024 * _MIB, io_slots=1),
    ),
    "candidate_pair.generate": (
        _pairs(fixed_bytes=256 * _KIB, cpu_threads=12),
        _pairs(fixed_bytes=128 * _KIB, cpu_threads=1),
    ),
    "matcher.run": (_matcher(per_item_bytes=10 * _MIB), _matcher(fixed_bytes=10 * _MIB)),
    "matcher.run.gpu": (_gpu_matcher(per_item_bytes=10 * _MIB), _gpu_matcher(fixed_bytes=10 * _MIB)),
    "geometric_verifier.run": (
        Estimate(memory_fixed_bytes=4 * _MIB, memory_per_item_bytes=_MIB, max_batch=8, io_slots=1),
    ),
}
"""By kind; the kinds that are not here never had another form."""
