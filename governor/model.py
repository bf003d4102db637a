"""Holds the values that the governor, the job kinds and the worker share.

This module imports nothing of Tiepoint and does no I/O. ``tasks`` may import
it; every other module of ``governor`` is for ``worker`` only.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Self

UINT64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one batch of a job kind declares to need, at most.

    A batch of ``n`` items is charged ``memory_fixed_bytes + n *
    memory_per_item_bytes`` of RAM, and likewise of GPU memory. ``cpu_threads``
    is a ceiling; the implicit minimum is one thread.

    An estimate arrives from outside (a message header), so an invalid one can
    be represented; the governor refuses it (see :meth:`is_valid`).
    """

    memory_fixed_bytes: int = 0
    memory_per_item_bytes: int = 0
    gpu_memory_fixed_bytes: int = 0
    gpu_memory_per_item_bytes: int = 0
    min_batch: int = 1
    max_batch: int = 1
    cpu_threads: int = 1
    gpu_slots: int = 0
    io_slots: int = 0

    def is_valid(self) -> bool:
        """Tell whether every amount is in range and the parts agree."""
        # A list, not a generator: this is asked for each decision, and takes half as long.
        amounts_in_range = [
            isinstance(amount, int) and 0 <= amount <= UINT64_MAX for amount in _amounts(self)
        ]
        return (
            all(amounts_in_range)
            and 1 <= self.min_batch <= self.max_batch
            and self.cpu_threads >= 1
            and (self.gpu_slots >= 1 or not self.wants_gpu_memory())
        )

    def wants_gpu_memory(self) -> bool:
        """Tell whether any GPU byte is asked for."""
        return self.gpu_memory_fixed_bytes > 0 or self.gpu_memory_per_item_bytes > 0

    def memory_bytes(self, batch: int) -> int:
        """Return the RAM charge of a batch (not range-checked)."""
        return self.memory_fixed_bytes + batch * self.memory_per_item_bytes

    def to_header(self) -> str:
        """Return the canonical JSON text of the message header ``estimate``.

        Canonical, because a claim compares headers as text: two estimates
        are equal exactly when their headers are.
        """
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_header(cls, header: str) -> Self:
        """Parse a message header.

        Raises:
            ValueError: the text is not a JSON object of known integer fields.
        """
        try:
            data = json.loads(header)
        except RecursionError as error:
            msg = "an estimate is not nested"
            raise ValueError(msg) from error
        if not isinstance(data, dict):
            msg = "an estimate is a JSON object"
            raise ValueError(msg)  # noqa: TRY004 - one error type for all malformed headers
        unknown = sorted(set(data) - {field.name for field in fields(cls)})
        if unknown:
            msg = f"unknown fields in the estimate: {', '.join(unknown)}"
            raise ValueError(msg)
        wrong = sorted(name for name, value in data.items() if type(value) is not int)
        if wrong:
            msg = f"not an integer in the estimate: {', '.join(wrong)}"
            raise ValueError(msg)
        return cls(**data)


_amounts: Callable[[Estimate], tuple[int, ...]] = attrgetter(*(field.name for field in fields(Estimate)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a running batch got; a job may use this and no more.

    On unified memory the GPU's bytes are part of ``memory_bytes``, and
    ``gpu_memory_bytes`` is 0: they are charged once.
    """

    batch: int
    cpu_threads: int
    memory_bytes: int
    gpu_memory_bytes: int = 0
    gpu_slots: int = 0
    io_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The node's one graphics card.

    ``is_uma`` tells that it has no memory of its own and lives in the RAM
    (unified memory). ``memory_total_bytes`` is None when unknown, and for UMA.
    """

    index: int
    name: str
    is_uma: bool
    memory_total_bytes: int | None = None
    pci_id: str = ""
    """Vendor and device, e.g. "1002:744c"; empty off PCI."""
    driver: str = ""
    """The kernel's driver of it, e.g. "amdgpu"; empty where it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """What the node owns: its machine, or the partition of it that it was given."""

    logical_cpus: int
    memory_total_bytes: int
    page_size_bytes: int
    architecture: str
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much of the node the governor leaves alone; see ``governor.policy``.

    ``memory_reserve_bytes`` is also the soft floor of free memory,
    ``memory_emergency_bytes`` the hard one (0 = off). A PSI limit of None is off.
    """

    memory_reserve_bytes: int
    memory_emergency_bytes: int
    cpu_reserve_threads: int
    io_slots: int
    gpu_memory_reserve_bytes: int = 0
    gpu_slots: int = 0
    cpu_psi_limit_percent: float | None = None
    memory_psi_limit_percent: float | None = None
    io_psi_limit_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One reading of the machine; None is unknown, never zero.

    ``captured_at_ns`` is CLOCK_MONOTONIC. PSI values are the ``some avg10``
    shares of time in which a task was stalled. The two swap counters are
    pages since boot, both known or both None.
    """

    captured_at_ns: int
    memory_available_bytes: int
    memory_free_bytes: int
    swap_free_bytes: int
    cpu_psi_percent: float | None = None
    memory_psi_percent: float | None = None
    io_psi_percent: float | None = None
    swapped_in_pages: int | None = None
    swapped_out_pages: int | None = None
    gpu_memory_available_bytes: int | None = None
    memory_promised_bytes: int = 0
    """Of the available memory: promised by other workers of the machine to jobs that do not hold it yet."""
    load_averages: tuple[float, float, float] | None = None


class Pressure(StrEnum):
    """How short of memory the machine is, as the governor sees it."""

    GREEN = "GREEN"
    YELLOW = "YELLOW"
    RED = "RED"


class Verdict(StrEnum):
    """What the governor answers."""

    START = "START"
    """Admitted as wished, or smaller by history, pressure or sharing."""
    REDUCE = "REDUCE"
    """Admitted, but memory, threads or slots were short of the wish."""
    WAIT = "WAIT"
    """Not now; ask again."""
    REJECT = "REJECT"
    """Never on this node."""


class DecisionReason(StrEnum):
    """Why; a closed list. Each reason belongs to one verdict."""

    # START
    IN_FULL = "IN_FULL"
    LIMITED_BY_HISTORY = "LIMITED_BY_HISTORY"
    LIMITED_BY_PRESSURE = "LIMITED_BY_PRESSURE"
    LIMITED_BY_SHARING = "LIMITED_BY_SHARING"
    # REDUCE
    LIMITED_BY_MEMORY = "LIMITED_BY_MEMORY"
    LIMITED_BY_THREADS = "LIMITED_BY_THREADS"
    LIMITED_BY_SLOTS = "LIMITED_BY_SLOTS"
    # WAIT
    STALE_SNAPSHOT = "STALE_SNAPSHOT"
    PRESSURE_RED = "PRESSURE_RED"
    CPU_PSI = "CPU_PSI"
    MEMORY_PSI = "MEMORY_PSI"
    IO_PSI = "IO_PSI"
    GPU_MEMORY_UNKNOWN = "GPU_MEMORY_UNKNOWN"
    PRESSURE_CAP = "PRESSURE_CAP"
    INSUFFICIENT_MEMORY = "INSUFFICIENT_MEMORY"
    SLOTS_BUSY = "SLOTS_BUSY"
    CLOSED = "CLOSED"
    # REJECT
    INVALID_ESTIMATE = "INVALID_ESTIMATE"
    NO_GPU = "NO_GPU"
    ESTIMATE_TOO_LARGE = "ESTIMATE_TOO_LARGE"
    IMPOSSIBLE_ON_NODE = "IMPOSSIBLE_ON_NODE"
    IDS_EXHAUSTED = "IDS_EXHAUSTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The governor's answer to one request.

    WAIT and REJECT carry zeros. ``needed`` is the charge of the granted batch,
    or of the smallest batch when there is none; ``available`` is what there
    was for it before (for IMPOSSIBLE_ON_NODE: what there can ever be). They
    are None where the decision fell before memory was looked at. On unified
    memory the GPU's bytes are part of the RAM's.
    """

    verdict: Verdict
    reason: DecisionReason
    detail: str
    """The numbers behind the reason, in words: "CPU pressure 36 % >= 20 %"."""
    batch: int = 0
    cpu_threads: int = 0
    gpu_slots: int = 0
    io_slots: int = 0
    needed_memory_bytes: int | None = None
    available_memory_bytes: int | None = None
    needed_gpu_memory_bytes: int | None = None
    available_gpu_memory_bytes: int | None = None

    @property
    def is_admitted(self) -> bool:
        """Tell whether the job may start (START or REDUCE)."""
        return self.verdict is Verdict.START or self.verdict is Verdict.REDUCE

    def sentence(self) -> str:
        """Return e.g. "WAIT CPU_PSI: CPU pressure 36 % >= 20 %"."""
        return f"{self.verdict} {self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """One amount of everything that the governor hands out.

    ``gpu_memory_bytes`` counts a dedicated card's own memory: None when
    unknown, 0 without such a card.
    """

    memory_bytes: int = 0
    gpu_memory_bytes: int | None = 0
    cpu_threads: int = 0
    gpu_slots: int = 0
    io_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The budget, what is reserved of it and what is left, at one instant."""

    budget: Resources
    reserved: Resources
    available: Resources
    active_reservations: int
