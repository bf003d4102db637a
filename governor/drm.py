"""Reads which graphics cards the kernel has, through udev and sysfs.

Does not cover which of them is the node's GPU, nor what its memory is
(:mod:`governor.gpu`).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from governor.model import UINT64_MAX

_CARD = re.compile(r"card(\d+)", re.ASCII)
_RENDER_NODE = re.compile(r"renderD\d+", re.ASCII)
_PCI_ADDRESS = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/)")
_AMOUNT = re.compile(r"\d{1,20}", re.ASCII)
_PCI_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrmCard:
    """One card of the kernel's DRM subsystem; what it does not tell is None.

    ``folder`` is its device's in sysfs. ``model`` is what udev's hardware
    database calls it. A card without a render node can display, not compute.
    """

    index: int
    folder: Path
    vendor_id: int | None = None
    device_id: int | None = None
    pci_address: str | None = None
    model: str | None = None
    driver: str | None = None
    has_render_node: bool = False


def list_cards() -> list[DrmCard]:
    """Return all cards, in no order; outputs and render nodes are no cards.

    Raises:
        ImportError: pyudev or the system's libudev is not installed.
        OSError: udev cannot list the devices.
    """
    # Neither pyudev nor libudev is there on every machine, and a worker must start on each.
    import pyudev  # noqa: PLC0415

    try:
        devices = list(pyudev.Context().list_devices(subsystem="drm"))
    except pyudev.DeviceNotFoundError as error:
        msg = f"a card went away while the cards were listed: {error}"
        raise OSError(msg) from error
    rendering = {_siblings(device) for device in devices if _RENDER_NODE.fullmatch(device.sys_name)}
    return [
        _card(int(found[1]), device, has_render_node=_siblings(device) in rendering)
        for device in devices
        if (found := _CARD.fullmatch(device.sys_name))
    ]


def is_absent(path: Path) -> bool:
    """Tell whether a sysfs file is not there; one that cannot be reached may be."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # Fails closed: its reading will be unknown.
        return False
    return False


def read_amount(path: Path) -> int | None:
    """Return the number that a sysfs file holds; None where it cannot be read or is no such number."""
    text = _text(path)
    if text is None or not _AMOUNT.fullmatch(text):
        return None
    amount = int(text)
    return amount if amount <= UINT64_MAX else None


def _card(index: int, device: Any, *, has_render_node: bool) -> DrmCard:
    folder = _device_folder(device)
    properties = {} if device.parent is None else device.parent.properties
    addresses = _PCI_ADDRESS.findall(f"{device.device_path}/")
    return DrmCard(
        index=index,
        folder=folder,
        vendor_id=_pci_id(folder / "vendor"),
        device_id=_pci_id(folder / "device"),
        pci_address=addresses[-1] if addresses else None,
        model=properties.get("ID_MODEL_FROM_DATABASE"),
        driver=None if device.parent is None else device.parent.driver,
        has_render_node=has_render_node,
    )


def _device_folder(device: Any) -> Path:
    linked = Path(device.sys_path) / "device"
    if linked.exists() or device.parent is None:
        return linked
    return Path(device.parent.sys_path)


def _siblings(device: Any) -> str:
    """Return what the card and the render node of one device have in common."""
    return str(device.device_path).rpartition("/")[0]


def _pci_id(path: Path) -> int | None:
    text = _text(path)
    return int(text, 16) if text is not None and _PCI_ID.fullmatch(text) else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):  # Fails closed: what cannot be read is unknown, never zero.
        return None
