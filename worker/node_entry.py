"""Says what a node tells the registry of itself, with every heartbeat: a few numbers, as text.

Does not cover the folders it sees, nor how an entry is read
(:mod:`worker.live_nodes`), nor when it expires (:mod:`worker.lease`).
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from governor import budget
from governor.errors import SnapshotError
from governor.model import Gpu, Resources
from worker.node import Node


class NodeEntry:
    """The changing part of a node's entry; may be asked by any thread."""

    def __init__(self, node: Node, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._node = node
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._generation = -1
        self._idle_since_ns = self._waiting_since_ns = now_ns()
        self._waiting_reason = ""
        self._limits = json.dumps(limits_of(node))
        # Asked now: no heartbeat may wait for a driver.
        self._gpu_matching = str(int(node.gpu_backend.is_usable))

    def fields(self, waits_for: str) -> dict[str, str]:
        """Return the entry's fields; ``waits_for`` is why nothing more is started, "" where nothing waits."""
        governor = self._node.governor
        reserved = governor.availability()
        idle_seconds, waits_seconds = self._standing(reserved.active_reservations, waits_for)
        return {
            "name": self._node.settings.name,
            "profile": self._node.settings.profile,
            "pressure": str(governor.pressure()),
            **_amounts("budget", self._budget()),
            **_amounts("reserved", reserved.reserved),
            **_amounts("offers", budget.most(governor.profile, governor.policy)),
            "active_reservations": str(reserved.active_reservations),
            "idle_seconds": str(idle_seconds),
            "waits_for": waits_for,
            "waits_seconds": str(waits_seconds),
            **_gpu(governor.profile.gpu),
            "gpu_matching": self._gpu_matching,
            "limits": self._limits,
        }

    def _budget(self) -> Resources:
        """Return what the machine leaves now: an idle node may not have looked at it for long."""
        governor = self._node.governor
        try:
            return governor.budget_on(self._node.snapshot())
        except SnapshotError:
            return governor.availability().budget

    def _standing(self, active_reservations: int, waits_for: str) -> tuple[int, int]:
        """Return for how many seconds nothing has been reserved, and it has waited for the same reason."""
        now_ns, reason = self._now_ns(), waits_for.partition(":")[0]
        with self._lock:
            generation = self._node.governor.generation()
            if active_reservations or generation != self._generation:
                # A batch that came and went between two heartbeats counts, too.
                self._generation, self._idle_since_ns = generation, now_ns
            if not reason or reason != self._waiting_reason:
                self._waiting_reason, self._waiting_since_ns = reason, now_ns
            return (now_ns - self._idle_since_ns) // 10**9, (now_ns - self._waiting_since_ns) // 10**9


def limits_of(node: Node) -> dict[str, Any]:
    """Return what a node's totals come from; None where there is no such bound."""
    totals, settings = node.totals, node.settings
    limit = totals.memory_limit
    return {
        "physical_memory_bytes": totals.physical_memory_bytes,
        "memory_limit_bytes": None if limit is None else limit.limit_bytes,
        "memory_limited_by": None if limit is None else limit.owner,
        "partition_memory_bytes": settings.memory_bytes,
        "affinity_cpus": totals.affinity_cpus,
        "quota_cpus": totals.quota_cpus,
        "partition_cpus": settings.cpus,
    }


def _amounts(what: str, amounts: Resources) -> dict[str, str]:
    """Return one field per resource; an unknown amount is an empty text."""
    return {
        f"{what}_memory_bytes": str(amounts.memory_bytes),
        f"{what}_cpu_threads": str(amounts.cpu_threads),
        f"{what}_gpu_memory_bytes": "" if amounts.gpu_memory_bytes is None else str(amounts.gpu_memory_bytes),
        f"{what}_gpu_slots": str(amounts.gpu_slots),
        f"{what}_io_slots": str(amounts.io_slots),
    }


def _gpu(gpu: Gpu | None) -> dict[str, str]:
    if gpu is None:
        return {"gpu": "", "gpu_is_uma": "0"}
    return {"gpu": gpu.name, "gpu_is_uma": str(int(gpu.is_uma))}
