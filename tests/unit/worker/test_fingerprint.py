"""Tests of what hardware a node says it is."""

from dataclasses import replace
from pathlib import Path

import pytest

from governor.model import Gpu
from worker.fingerprint import digest, fingerprint_of
from worker.node import Node
from worker.settings import Settings

CARD = Gpu(
    index=0, name="AMD X", is_uma=False, memory_total_bytes=8 << 30, pci_id="1002:744c", driver="amdgpu"
)


def told_of(gpu: Gpu | None, proc_root: Path = Path("/proc")) -> dict[str, str]:
    """Return what this machine would tell if that were its card."""
    node = Node(Settings())
    node.profile = replace(node.profile, gpu=gpu)
    return fingerprint_of(node, proc_root)


def test_a_card_is_told_by_name_memory_id_and_driver() -> None:
    """Not by the slot that it sits in."""
    told = told_of(CARD)

    assert (told["gpu"], told["gpu_pci_id"], told["gpu_driver"]) == (
        "AMD X 8589934592",
        "1002:744c",
        "amdgpu",
    )
    assert told == told_of(replace(CARD, index=1))


@pytest.mark.parametrize("gpu", [None, replace(CARD, pci_id="", driver="")])
def test_what_is_not_known_of_a_card_is_left_out(gpu: Gpu | None) -> None:
    """An empty field would look like one that is equal."""
    assert {"gpu_pci_id", "gpu_driver"}.isdisjoint(told_of(gpu))


@pytest.mark.parametrize(
    ("cpuinfo", "told"), [("model name\t: Some CPU\n", "Some CPU"), ("", None), (None, None)]
)
def test_a_processor_is_told_by_its_model(tmp_path: Path, cpuinfo: str | None, told: str | None) -> None:
    """Where the kernel names it."""
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)

    assert told_of(None, tmp_path).get("cpu_model") == told


def test_a_digest_depends_on_every_field_and_not_on_their_order() -> None:
    """Twelve digits."""
    one = digest({"a": "1", "b": "2"})

    assert len(one) == 12
    assert one == digest({"b": "2", "a": "1"}) != digest({"a": "2", "b": "1"})
