"""Builds the values that governor tests are made of, and a machine to look at."""

from pathlib import Path
from typing import Any

from governor.governor import Governor
from governor.model import Estimate, Gpu, HardwareProfile, Policy, Resources, Snapshot
from governor.pressure import PressureState
from governor.request import Request, Situation

MIB = 2**20
GIB = 2**30
LOOK_EVERY_NS = 250_000_000


def a_profile(**changes: Any) -> HardwareProfile:
    """Build a node of 16 CPUs and 16 GiB without a GPU."""
    values: dict[str, Any] = {
        "logical_cpus": 16,
        "memory_total_bytes": 16 * GIB,
        "page_size_bytes": 4096,
        "architecture": "x86_64",
    }
    return HardwareProfile(**(values | changes))


def a_dedicated_gpu(memory_total_bytes: int | None = 4 * GIB) -> Gpu:
    """Build a card with its own memory."""
    return Gpu(index=0, name="dedicated", is_uma=False, memory_total_bytes=memory_total_bytes)


def a_uma_gpu() -> Gpu:
    """Build a card that lives in the RAM."""
    return Gpu(index=0, name="unified", is_uma=True)


def a_policy(**changes: Any) -> Policy:
    """Build the policy of the specification's scenarios."""
    values: dict[str, Any] = {
        "memory_reserve_bytes": 2 * GIB,
        "memory_emergency_bytes": 0,
        "cpu_reserve_threads": 1,
        "io_slots": 8,
        "cpu_psi_limit_percent": 20,
        "memory_psi_limit_percent": 1,
    }
    return Policy(**(values | changes))


def a_snapshot(**changes: Any) -> Snapshot:
    """Build a calm reading with 10 GiB available, taken at 0 ns."""
    values: dict[str, Any] = {
        "captured_at_ns": 0,
        "memory_available_bytes": 10 * GIB,
        "memory_free_bytes": GIB,
        "swap_free_bytes": GIB,
    }
    return Snapshot(**(values | changes))


def an_estimate(**changes: Any) -> Estimate:
    """Build the estimate of the specification's scenarios: 1 GiB per item, 2..8 items, 16 threads."""
    values: dict[str, Any] = {
        "memory_per_item_bytes": GIB,
        "min_batch": 2,
        "max_batch": 8,
        "cpu_threads": 16,
    }
    return Estimate(**(values | changes))


def a_request(waiting_items: int | None = None, nodes: int = 1, **changes: Any) -> Request:
    """Build a request for :func:`an_estimate` with changes."""
    return Request(estimate=an_estimate(**changes), waiting_items=waiting_items, nodes=nodes)


def a_situation(**changes: Any) -> Situation:
    """Build an idle, calm node that looks at :func:`a_snapshot` at 0 ns."""
    values: dict[str, Any] = {
        "now_ns": 0,
        "profile": a_profile(),
        "policy": a_policy(),
        "snapshot": a_snapshot(),
        "pressure": PressureState(),
        "history": (),
        "reserved": Resources(),
    }
    return Situation(**(values | changes))


class Machine:
    """A machine whose clock and readings a test sets; it keeps its swap counters."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.swapped_pages = 0

    def clock(self) -> int:
        """Return CLOCK_MONOTONIC of this machine."""
        return self.now_ns

    def look(self, *, available_bytes: int = 10 * GIB, swapped_pages: int = 0, **changes: Any) -> Snapshot:
        """Let time pass and take a new snapshot, after swapping so many more pages."""
        self.now_ns += LOOK_EVERY_NS
        self.swapped_pages += swapped_pages
        return a_snapshot(
            captured_at_ns=self.now_ns,
            memory_available_bytes=available_bytes,
            swapped_in_pages=self.swapped_pages,
            swapped_out_pages=0,
            **changes,
        )


def a_governor(
    machine: Machine | None = None, profile: HardwareProfile | None = None, policy: Policy | None = None
) -> Governor:
    """Build a governor of that machine."""
    machine = machine or Machine()
    return Governor(profile or a_profile(), policy or a_policy(), now_ns=machine.clock, capture=machine.look)


MEMINFO = "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 10485760 kB\nSwapFree: 2097152 kB\n"


def a_proc(root: Path, **files: str | None) -> Path:
    """Write a fake /proc; ``pressure_cpu="..."`` replaces a file, None leaves it out."""
    contents: dict[str, str | None] = {
        "meminfo": MEMINFO,
        "vmstat": "nr_free_pages 5\npswpin 7\npswpout 9\n",
        "loadavg": "0.50 0.25 0.10 1/100 4242\n",
        "pressure_cpu": "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n",
        "pressure_memory": "some avg10=0.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00\n",
        "pressure_io": "some avg10=3.00 avg60=0.00 avg300=0.00 total=1\n",
    }
    (root / "pressure").mkdir(parents=True)
    for name, text in (contents | files).items():
        if text is not None:
            (root / name.replace("_", "/")).write_text(text)
    return root
