"""Decides which graphics card is the node's GPU, what its memory is, and how to read what is free of it.

Does not cover how cards are listed (:mod:`governor.drm`). Total and use are
always one card's: what the GPU does not say is unknown, never another card's.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from governor import drm, nvml
from governor.drm import DrmCard, is_absent, read_amount
from governor.model import Gpu

_AMD, _INTEL, _NVIDIA = 0x1002, 0x8086, 0x10DE
_VENDOR_NAMES = {_AMD: "AMD", _INTEL: "Intel", _NVIDIA: "NVIDIA"}
_VIRTUAL_VENDORS = {0x1AF4, 0x15AD}
"""virtio and VMware: they have render nodes, but the host draws and nothing computes."""

_VRAM_TOTAL, _VRAM_USED, _GTT_TOTAL = "mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total"
"""Files of the driver amdgpu: https://docs.kernel.org/gpu/amdgpu/driver-misc.html."""

_APU_MOST_VRAM_BYTES = 2 * 2**30
_MARKETED_NAME = re.compile(r"\[([^\[\]]+)\]")


def _unknown() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFinding:
    """What was found at the start; it is kept, so that a snapshot need not look again.

    ``note`` says why there is no GPU, or why its memory is unknown, in one
    sentence for the log; None where all is known.
    """

    gpu: Gpu | None
    note: str | None = None
    read_available_bytes: Callable[[], int | None] = _unknown
    """Reads how much of a dedicated GPU's own memory is free now; None = unknown, and for UMA."""


def find_gpu(
    machine_memory_bytes: int, list_cards: Callable[[], Sequence[DrmCard]] = drm.list_cards
) -> GpuFinding:
    """Find the node's one GPU: the card of the lowest number that can compute.

    ``machine_memory_bytes`` is the machine's RAM, not a partition's: it tells
    an APU from a card. Never raises: a machine whose cards cannot be listed
    has no GPU.
    """
    try:
        cards = list_cards()
    except (ImportError, OSError) as error:
        note = f"graphics cards cannot be listed: {error} (it takes pyudev and the system's libudev)"
        return GpuFinding(gpu=None, note=note)
    computing = [card for card in cards if _can_compute(card)]
    if not computing:
        return GpuFinding(gpu=None, note="the machine has no graphics card that can compute")
    return _finding(min(computing, key=lambda card: card.index), machine_memory_bytes)


def _can_compute(card: DrmCard) -> bool:
    """Tell a GPU from what only displays: a server's console, a boot framebuffer, a virtual screen."""
    if card.vendor_id in _VENDOR_NAMES:
        return True
    return card.has_render_node and card.vendor_id not in _VIRTUAL_VENDORS


def _finding(card: DrmCard, machine_memory_bytes: int) -> GpuFinding:
    if is_absent(card.folder / _VRAM_TOTAL):
        return _nvidia(card) if card.vendor_id == _NVIDIA else _unified(card)
    total_bytes = read_amount(card.folder / _VRAM_TOTAL)
    if total_bytes is None:
        return _of_unknown_memory(card, f"there is no number to be read in {card.folder / _VRAM_TOTAL}")
    if total_bytes == 0 or _is_apu(card, total_bytes, machine_memory_bytes):
        return _unified(card)
    return _dedicated(card, total_bytes, lambda: read_amount(card.folder / _VRAM_USED))


def _is_apu(card: DrmCard, vram_bytes: int, machine_memory_bytes: int) -> bool:
    """Tell whether a card's own memory is a mere carve-out of the RAM that it works in."""
    gtt_bytes = read_amount(card.folder / _GTT_TOTAL)
    return (
        card.vendor_id == _AMD
        and vram_bytes <= _APU_MOST_VRAM_BYTES
        and gtt_bytes is not None
        and 4 * gtt_bytes >= machine_memory_bytes
    )


def _unified(card: DrmCard) -> GpuFinding:
    return GpuFinding(gpu=_gpu(card, is_uma=True))


def _nvidia(card: DrmCard) -> GpuFinding:
    if card.pci_address is None:
        return _of_unknown_memory(card, "it has no PCI address to ask NVIDIA's driver for")
    try:
        answering = nvml.open_card(card.pci_address)
    except nvml.NvmlError as error:
        return _of_unknown_memory(card, str(error))
    return _dedicated(card, answering.memory_total_bytes, answering.read_used_bytes)


def _of_unknown_memory(card: DrmCard, cause: str) -> GpuFinding:
    gpu = _gpu(card, is_uma=False)
    return GpuFinding(gpu=gpu, note=_waits(gpu, cause))


def _dedicated(card: DrmCard, total_bytes: int, read_used_bytes: Callable[[], int | None]) -> GpuFinding:
    gpu = _gpu(card, is_uma=False, memory_total_bytes=total_bytes)

    def read_available_bytes() -> int | None:
        used_bytes = read_used_bytes()
        return None if used_bytes is None else max(0, total_bytes - used_bytes)

    is_known = read_available_bytes() is not None
    return GpuFinding(
        gpu=gpu,
        note=None if is_known else _waits(gpu, f"how much of it is used cannot be read in {card.folder}"),
        read_available_bytes=read_available_bytes,
    )


def _gpu(card: DrmCard, *, is_uma: bool, memory_total_bytes: int | None = None) -> Gpu:
    is_on_pci = card.vendor_id is not None and card.device_id is not None
    return Gpu(
        index=card.index,
        name=_name(card),
        is_uma=is_uma,
        memory_total_bytes=memory_total_bytes,
        pci_id=f"{card.vendor_id:04x}:{card.device_id:04x}" if is_on_pci else "",
        driver=card.driver or "",
    )


def _waits(gpu: Gpu, cause: str) -> str:
    return f"the memory of {gpu.name} (card{gpu.index}) is unknown, jobs that want a GPU wait: {cause}"


def _name(card: DrmCard) -> str:
    """Return e.g. "AMD Radeon RX 7900 XT", "AMD GPU 0x744c" without a database, "v3d GPU" off PCI."""
    maker = _VENDOR_NAMES.get(card.vendor_id or 0)
    if card.model is not None:
        marketed = _MARKETED_NAME.findall(card.model)
        return " ".join(filter(None, (maker, marketed[-1] if marketed else card.model)))
    kind = f"{maker or card.driver or 'unnamed'} GPU"
    return kind if card.device_id is None else f"{kind} {card.device_id:#06x}"
