"""Says what hardware a node is, so that what it has learned is not believed on another.

Not its name, address, clock, load or the date: those change, and the hardware
stays. Does not decide what a difference means (:mod:`worker.factor_verdicts`).
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from governor import budget
from worker.node import Node

_DIGITS = 12
_MEMORY_STEP_BYTES = 256 * 2**20
"""A kernel keeps some memory for itself, each version a little more or less."""
_CPU_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def fingerprint_of(node: Node, proc_root: Path = Path("/proc")) -> dict[str, str]:
    """Return what describes a node's hardware; a field is missing where the machine does not tell it."""
    profile, offers = node.profile, budget.most(node.profile, node.policy)
    gpu = profile.gpu
    told = {
        "cpu_model": _cpu_model(proc_root),
        "cpu_cores": str(profile.logical_cpus),
        "memory": str(round(node.totals.physical_memory_bytes / _MEMORY_STEP_BYTES)),
        "budget_memory": str(round(offers.memory_bytes / _MEMORY_STEP_BYTES)),
        "budget_cpu_threads": str(offers.cpu_threads),
        "budget_io_slots": str(offers.io_slots),
        "gpu": "none" if gpu is None else f"{gpu.name} {gpu.memory_total_bytes or 'shared'}",
        "gpu_pci_id": "" if gpu is None else gpu.pci_id,
        "gpu_driver": "" if gpu is None else gpu.driver,
        "kernel": ".".join(os.uname().release.split(".")[:2]),
        "architecture": profile.architecture,
    }
    return {name: value for name, value in told.items() if value}


def _cpu_model(proc_root: Path) -> str:
    try:
        found = _CPU_MODEL.search((proc_root / "cpuinfo").read_text("utf-8", "replace"))
    except OSError:
        return ""
    return found[1].strip() if found else ""


def digest(fields: Mapping[str, str]) -> str:
    """Return what a fingerprint, or any other set of named texts, is called: 12 hexadecimal digits."""
    canonical = json.dumps(dict(fields), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGITS]
