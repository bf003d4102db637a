"""Describes graphics cards to umockdev, and lets programs see these cards instead of the machine's.

Does not cover what is made of them; NVIDIA's library is ``tests.fake_nvml``'s.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

GIB = 2**30
AMD, INTEL, NVIDIA = "0x1002", "0x8086", "0x10de"

needs_umockdev = pytest.mark.skipif(
    shutil.which("umockdev-run") is None, reason="umockdev-run is missing (Debian's package umockdev)"
)


@dataclass(frozen=True, kw_only=True)
class MockCard:
    """One card with its outputs and its render node; ``files`` are attributes of its PCI device.

    A card without a vendor is no PCI device.
    """

    number: int
    vendor: str | None = AMD
    device: str = "0x744c"
    files: Mapping[str, str | int] = field(default_factory=dict)
    model: str | None = None
    has_render_node: bool = True

    @property
    def address(self) -> str:
        """Return the PCI address."""
        return f"0000:0{self.number + 1}:00.0"

    @property
    def device_path(self) -> str:
        """Return the device's place below /sys: cards lie behind a bridge, which has an address too."""
        return (
            f"/devices/platform/gpu.{self.number}"
            if self.vendor is None
            else f"/devices/pci0000:00/0000:00:01.0/{self.address}"
        )

    def description(self) -> str:
        """Return the text that ``umockdev-run --device`` reads."""
        nodes = [f"card{self.number}", *([f"renderD{128 + self.number}"] if self.has_render_node else [])]
        outputs = [f"card{self.number}-HDMI-A-1", f"card{self.number}-DP-1"]
        return "\n".join([self._device(), *map(self._node, nodes), *map(self._output, outputs)])

    def _device(self) -> str:
        subsystem = "platform" if self.vendor is None else "pci"
        ids = {} if self.vendor is None else {"vendor": self.vendor, "device": self.device}
        lines = [f"P: {self.device_path}", f"E: SUBSYSTEM={subsystem}"]
        lines += [f"E: ID_MODEL_FROM_DATABASE={self.model}"] if self.model else []
        return "\n".join(
            [*lines, *(f"A: {name}={text}\\n" for name, text in {**ids, **self.files}.items()), ""]
        )

    def _node(self, name: str) -> str:
        lines = [
            f"P: {self.device_path}/drm/{name}",
            f"N: dri/{name}",
            f"E: DEVNAME=/dev/dri/{name}",
            "E: SUBSYSTEM=drm",
            f"L: device=../../../{self.device_path.rpartition('/')[2]}",
        ]
        return "\n".join([*lines, ""])

    def _output(self, name: str) -> str:
        path = f"{self.device_path}/drm/card{self.number}/{name}"
        return "\n".join([f"P: {path}", "E: SUBSYSTEM=drm", "A: status=disconnected\\n", ""])


def an_amd_card(number: int = 0, *, total: str | int = 8 * GIB, used: str | int | None = GIB) -> MockCard:
    """Build a card with memory of its own; ``used`` None leaves the file out."""
    files = {"mem_info_vram_total": total, "mem_info_gtt_total": 8 * GIB}
    return MockCard(number=number, files=files if used is None else {**files, "mem_info_vram_used": used})


def under_umockdev(folder: Path, *cards: MockCard) -> list[str]:
    """Return what stands before a command that is to see these cards and no other."""
    path = folder / "cards.umockdev"
    # umockdev wants at least one device: a machine has other things than cards.
    path.write_text(
        "\n".join(
            ["P: /devices/platform/lid\nE: SUBSYSTEM=platform\n", *(card.description() for card in cards)]
        )
    )
    return ["umockdev-run", "--device", str(path), "--"]


@contextmanager
def changeable_cards(folder: Path, *cards: MockCard) -> Iterator[tuple[Path, dict[str, str]]]:
    """Hold cards whose files a test can change.

    Yields the folder that stands for /, and the environment of a process that is to see it.
    """
    show = ["sh", "-c", 'echo "$UMOCKDEV_DIR"; echo "$LD_PRELOAD"; exec cat']
    with subprocess.Popen(
        [*under_umockdev(folder, *cards), *show], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        if holder.stdin is None or holder.stdout is None:
            pytest.fail("the testbed has no pipes")
        root, preload = (holder.stdout.readline().strip() for _ in range(2))
        yield Path(root), {"UMOCKDEV_DIR": root, "LD_PRELOAD": preload}
        holder.stdin.close()
