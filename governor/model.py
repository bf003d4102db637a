"""Holds the values that the governor, the job kinds and the worker share.

This module imports nothing of Tiepoint and does no I/O. ``tasks`` may import
it; every other module of ``governor`` is for ``worker`` only.
"""

import json
from dataclasses import asdict, dataclass, fields
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
        amounts_in_range = all(
            isinstance(amount, int) and 0 <= amount <= UINT64_MAX for amount in asdict(self).values()
        )
        return (
            amounts_in_range
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
        data = json.loads(header)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a running batch got; a job may use this and no more."""

    batch: int
    cpu_threads: int
    memory_bytes: int
    gpu_memory_bytes: int = 0
    gpu_slots: int = 0
    io_slots: int = 0
