"""Holds what one node is: its settings, job kinds, hardware and governor.

Does not cover the queue (:mod:`worker.puller`) or the registry of nodes in
Redis (:mod:`worker.lease`).
"""

import time
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from governor import policy as policies
from governor.cgroups import find_limits
from governor.errors import ProfileError
from governor.governor import Governor
from governor.gpu import GpuFinding, find_gpu
from governor.model import Decision, Estimate, Snapshot
from governor.profile import read_profile
from governor.snapshot import capture_snapshot, read_available_memory_bytes
from governor.totals import Totals, read_totals
from tasks.catalog import load_kinds
from tasks.kind import Kind
from worker.gpu_backend import GpuBackend, find_backend
from worker.held_memory import HeldMemory
from worker.logs import get_logger
from worker.machine import Place
from worker.planning import NodePlanning
from worker.promises import Promises, SharingGovernor
from worker.settings import Settings, WrongSettingError

log = get_logger(__name__)

_PROC_ROOT = Path("/proc")
_STEP_BYTES = 64 * 2**20
_SNAPSHOT_REUSE_NS = 250_000_000
"""The worker takes at most one snapshot per 250 ms (spec: governor, section 6)."""


class Node:
    """One governed worker process on one machine or partition.

    Main thread only, but for the governor and :meth:`snapshot`.
    """

    def __init__(self, settings: Settings, place: Place | None = None) -> None:
        """``place`` is the worker's on its machine; without it nobody is looked for beside us."""
        self.settings = settings
        self.place = place
        self.kinds = load_kinds(settings.kind_modules)
        self.limits = find_limits(_PROC_ROOT)
        self.totals = read_totals(_PROC_ROOT, self.limits)
        self._gpu = find_gpu(self.totals.physical_memory_bytes)
        self.profile = read_profile(
            partition_memory_bytes=settings.memory_bytes,
            partition_cpus=settings.cpus,
            proc_root=_PROC_ROOT,
            gpu=self._gpu.gpu,
            limits=self.limits,
        )
        self.policy = policies.named(policies.PolicyName(settings.profile), self.profile)
        self.held_memory = HeldMemory(_PROC_ROOT)
        self._promises = None if place is None else Promises(place, self._unused_bytes)
        self.governor = self._make_governor()
        self.planning = NodePlanning.of(settings.planning)
        self._snapshot: Snapshot | None = None
        _report(self._gpu)

    @property
    def cpu_budget_threads(self) -> int:
        """Return how many CPU threads jobs may use."""
        return self.profile.logical_cpus - self.policy.cpu_reserve_threads

    @cached_property
    def gpu_backend(self) -> GpuBackend:
        """What this node can match on; the first look takes seconds where there is a GPU."""
        backend = find_backend(self._gpu, self.child_environment())
        if self.profile.gpu is not None:
            log.info("gpu_matching", device=backend.device or None, reason=backend.reason or None)
        return backend

    def takes(self, kind: Kind) -> bool:
        """Tell whether this node pulls jobs of a kind at all."""
        return not kind.needs_opencl or self.gpu_backend.is_usable

    def charged(self, kind: Kind, estimate: Estimate) -> Estimate:
        """Return what a batch of a kind is charged here: on a GPU, the memory of its driver too.

        Only the first batch of a child loads the driver, and no message can know how large it is.
        """
        if not kind.needs_opencl:
            return estimate
        memory_fixed_bytes = estimate.memory_fixed_bytes + self.gpu_backend.driver_memory_bytes
        return replace(estimate, memory_fixed_bytes=memory_fixed_bytes)

    def free_memory_bytes(self) -> int:
        """Return how much memory is neither kept back nor reserved, by the last reading of the machine."""
        return self.governor.availability().available.memory_bytes

    def snapshot(self) -> Snapshot:
        """Return a reading of the machine that is at most 250 ms old.

        Raises:
            SnapshotError: the machine cannot be read; nothing may start.
        """
        now_ns = time.monotonic_ns()
        if self._snapshot is None or now_ns - self._snapshot.captured_at_ns > _SNAPSHOT_REUSE_NS:
            self._snapshot = self._capture()
        return self._snapshot

    def _make_governor(self) -> Governor:
        now_ns, capture = time.monotonic_ns, self._capture
        if self._promises is None:
            return Governor(self.profile, self.policy, now_ns=now_ns, capture=capture)
        return SharingGovernor(
            self.profile,
            self.policy,
            now_ns=now_ns,
            capture=capture,
            promises=self._promises,
            read_available_bytes=lambda: read_available_memory_bytes(_PROC_ROOT, self.limits),
        )

    def _unused_bytes(self) -> int:
        """Return how much is reserved that no job holds yet."""
        reserved_bytes = self.governor.availability().reserved.memory_bytes
        return max(0, reserved_bytes - self.held_memory.read_bytes())

    def _capture(self) -> Snapshot:
        if self._promises is not None:
            self._promises.publish()  # Jobs have taken more of theirs since.
        return capture_snapshot(_PROC_ROOT, time.monotonic_ns, self._gpu.read_available_bytes, self.limits)

    def memory_option_for(self, decision: Decision) -> str | None:
        """Return the least ``--memory`` (in steps of 64 MiB) that would admit a refused job.

        None where no partition was asked for, or where the machine has not that much.
        """
        needed_bytes = decision.needed_memory_bytes
        if self.settings.memory_bytes is None or needed_bytes is None:
            return None
        machine = read_profile(proc_root=_PROC_ROOT)
        for total_bytes in range(
            -(-needed_bytes // _STEP_BYTES) * _STEP_BYTES, machine.memory_total_bytes, _STEP_BYTES
        ):
            profile = replace(machine, memory_total_bytes=total_bytes)
            policy = policies.named(policies.PolicyName(self.settings.profile), profile)
            if total_bytes - policy.memory_reserve_bytes >= needed_bytes:
                return f"{total_bytes // 2**20}MiB"
        return None

    def child_environment(self) -> dict[str, str]:
        """Return the environment of the pool's processes.

        BLAS starts its threads at import and would start one per core in
        every child; kinds that want more ask for it within their grant.
        """
        single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return {**self.settings.child_environment(), **single}


def check_partition(settings: Settings) -> None:
    """Check that this machine, its limits or the partition asked for leave anything for jobs.

    Raises:
        WrongSettingError: they do not; the text says what is too small, and what to raise.
    """
    try:
        limits = find_limits(_PROC_ROOT)
        totals = read_totals(_PROC_ROOT, limits)
        profile = read_profile(settings.memory_bytes, settings.cpus, _PROC_ROOT, limits=limits)
    except ProfileError as error:
        raise WrongSettingError(str(error)) from error
    violated = policies.violations(policies.named(policies.PolicyName(settings.profile), profile), profile)
    if violated:
        raise WrongSettingError(f"{violated[0]}; {_cure(settings, totals)}")


def _cure(settings: Settings, totals: Totals) -> str:
    """Return what to raise: the smallest of what bounds the node."""
    if settings.memory_bytes is not None and settings.memory_bytes < totals.memory_bytes:
        return "raise --memory or leave it out"
    if totals.memory_limit is not None:
        limit = totals.memory_limit
        return f"raise the limit of {limit.owner}, which is {limit.limit_bytes // 2**20} MiB"
    return "use a machine with more memory"


def _report(found: GpuFinding) -> None:
    if found.gpu is None:
        log.info("no_gpu", cause=found.note)
    elif found.note is not None:
        log.warning("gpu_memory_unknown", cause=found.note)
    else:
        log.info("gpu_found", **asdict(found.gpu))


@cache
def node_of(app: Any) -> Node:
    """Return the node that a Celery app's worker is, made at the first call."""
    return Node(app.conf.tiepoint_settings or Settings(), app.conf.get("tiepoint_place"))
