"""Reads the memory of a card that runs NVIDIA's own driver, through the driver's library (NVML).

``pynvml`` is optional (``tiepoint[nvidia]``) and imported only for such a card.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


class NvmlError(Exception):
    """The card's memory cannot be read through NVML; the text says why, and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """One card that NVML answers for. Its handle is kept: a reading is one call."""

    memory_total_bytes: int
    read_used_bytes: Callable[[], int | None]
    """None where the driver does not say, for whatever reason."""


def open_card(pci_address: str) -> NvmlCard:
    """Return the card at a PCI address, e.g. "0000:01:00.0"; no other card is ever asked.

    Raises:
        NvmlError: pynvml or the driver's library is missing, or does not know this card.
    """
    pynvml = _import_pynvml()
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_address)
        total_bytes = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVIDIA's driver does not answer for the card at {pci_address}: {error}") from error
    if not isinstance(total_bytes, int) or total_bytes <= 0:
        raise NvmlError(f"NVIDIA's driver says that the card at {pci_address} has {total_bytes} bytes")
    return NvmlCard(memory_total_bytes=total_bytes, read_used_bytes=lambda: _read_used_bytes(pynvml, handle))


def _import_pynvml() -> ModuleType:
    try:
        # Optional, and it loads the driver's library: only for the card that needs it.
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        raise NvmlError(f"it takes pip install 'tiepoint[nvidia]' to read it ({error})") from error
    library: ModuleType = pynvml
    return library


def _read_used_bytes(pynvml: ModuleType, handle: Any) -> int | None:
    try:
        used_bytes = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    except pynvml.NVMLError:  # Fails closed: what cannot be read is unknown.
        return None
    return used_bytes if isinstance(used_bytes, int) and used_bytes >= 0 else None
