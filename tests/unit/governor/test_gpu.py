"""Tests of which card is the GPU and what is read of it, on fake folders; mock devices are integration's."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from governor.drm import DrmCard
from governor.gpu import GpuFinding, find_gpu
from governor.model import Estimate
from governor.policy import PolicyName, named, violations
from governor.snapshot import capture_snapshot
from tests.fake_nvml import FakeNvml
from tests.unit.governor.builders import GIB, a_governor, a_proc, a_profile, a_snapshot

AMD, INTEL, NVIDIA = 0x1002, 0x8086, 0x10DE
VRAM, USED, GTT = "mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total"
RAM = 16 * GIB


def a_card(folder: Path, files: Mapping[str, int | str] | None = None, **changes: object) -> DrmCard:
    """Build an AMD card at 0000:01:00.0 whose device's folder holds these files."""
    folder.mkdir(exist_ok=True)
    for name, content in (files or {}).items():
        (folder / name).write_text(f"{content}\n")
    card = DrmCard(index=0, folder=folder, vendor_id=AMD, pci_address="0000:01:00.0", has_render_node=True)
    return replace(card, **changes)  # type: ignore[arg-type]  # a test names fields


def found(*cards: DrmCard) -> GpuFinding:
    """Find the GPU among these cards, on 16 GiB of RAM."""
    return find_gpu(RAM, lambda: cards)


@pytest.mark.parametrize(
    ("vram_bytes", "gtt_bytes", "is_uma"),
    [
        (2 * GIB, RAM // 4, True),
        (2 * GIB + 1, RAM // 4, False),
        (2 * GIB, RAM // 4 - 1, False),
        (2 * GIB, "much", False),
        (0, 0, True),
        (1, 0, False),
    ],
)
def test_an_apu_is_told_by_little_memory_and_much_gtt(
    tmp_path: Path, vram_bytes: int, gtt_bytes: int | str, *, is_uma: bool
) -> None:
    """2 GiB and a quarter of the RAM, each just met and just not."""
    gpu = found(a_card(tmp_path, {VRAM: vram_bytes, GTT: gtt_bytes, USED: 0})).gpu

    assert gpu is not None
    assert (gpu.is_uma, gpu.memory_total_bytes) == (is_uma, None if is_uma else vram_bytes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"device_id": 0x744C, "driver": "amdgpu"}, ("1002:744c", "amdgpu")),
        ({"device_id": 0x0BE, "vendor_id": INTEL, "driver": None}, ("8086:00be", "")),
        ({"device_id": None, "driver": "v3d"}, ("", "v3d")),
    ],
)
def test_a_card_is_known_by_its_id_and_driver(
    tmp_path: Path, changes: dict[str, object], told: tuple[str, str]
) -> None:
    """Whatever its memory is; empty where the machine does not tell."""
    for files in ({VRAM: GIB, USED: 0}, {VRAM: 0}, {VRAM: "much"}):
        gpu = found(a_card(tmp_path, files, **changes)).gpu

        assert gpu is not None
        assert (gpu.pci_id, gpu.driver) == told


def test_only_amd_builds_apus_like_that(tmp_path: Path) -> None:
    """Another maker's card with the same figures has its own memory."""
    gpu = found(a_card(tmp_path, {VRAM: GIB, GTT: RAM}, vendor_id=INTEL)).gpu

    assert gpu is not None
    assert (gpu.is_uma, gpu.memory_total_bytes) == (False, GIB)


@pytest.mark.parametrize("total", ["", "-1", "0x10", "1.5", "1e9", "8 GiB", str(2**64), "\u0661"])
def test_a_total_that_is_no_number_is_unknown(tmp_path: Path, total: str) -> None:
    """It is neither zero nor shared memory: a job that wants a GPU waits."""
    finding = found(a_card(tmp_path, {VRAM: total, USED: 0}))

    assert finding.gpu is not None
    assert (finding.gpu.is_uma, finding.gpu.memory_total_bytes) == (False, None)
    assert (finding.read_available_bytes(), VRAM in str(finding.note)) == (None, True)


def test_a_total_that_cannot_be_reached_is_unknown(tmp_path: Path) -> None:
    """Only a file that is surely not there tells of shared memory."""
    (tmp_path / VRAM).symlink_to(VRAM)

    gpu = found(a_card(tmp_path)).gpu

    assert gpu is not None
    assert (gpu.is_uma, gpu.memory_total_bytes) == (False, None)


@pytest.mark.parametrize(
    ("used", "available_bytes"),
    [
        (0, GIB),
        (1, GIB - 1),
        (GIB, 0),
        (GIB + 1, 0),
        (2**64 - 1, 0),
        (2**64, None),
        ("-1", None),
        ("", None),
        ("x", None),
    ],
)
def test_use_is_read_anew_each_time(tmp_path: Path, used: int | str, available_bytes: int | None) -> None:
    """More used than there is leaves nothing; no number is unknown, and so it is until there is one again."""
    finding = found(a_card(tmp_path, {VRAM: GIB, USED: 5}))
    (tmp_path / USED).write_text(f"{used}\n")

    assert finding.read_available_bytes() == available_bytes
    (tmp_path / USED).write_text("7\n")
    assert finding.read_available_bytes() == GIB - 7


def test_the_lowest_card_answers_for_itself_alone(tmp_path: Path) -> None:
    """Whatever order they are listed in, and whatever the other one knows."""
    lower = a_card(tmp_path / "lower", {VRAM: 3 * GIB}, index=1)
    higher = a_card(tmp_path / "higher", {VRAM: GIB, USED: 0}, index=2)

    finding = found(higher, lower)

    assert finding.gpu is not None
    assert (finding.gpu.index, finding.gpu.memory_total_bytes) == (1, 3 * GIB)
    assert finding.read_available_bytes() is None


@pytest.mark.parametrize(
    ("vendor_id", "has_render_node", "is_gpu"),
    [
        (AMD, False, True),
        (INTEL, False, True),
        (NVIDIA, False, True),
        (None, True, True),
        (None, False, False),
        (0x1A03, True, True),
        (0x1A03, False, False),
        (0x1AF4, True, False),
        (0x15AD, True, False),
    ],
)
def test_a_card_that_only_displays_is_no_gpu(
    tmp_path: Path, *, vendor_id: int | None, has_render_node: bool, is_gpu: bool
) -> None:
    """A console chip, a boot framebuffer and a virtual screen compute nothing; a board's own GPU does."""
    finding = found(a_card(tmp_path, vendor_id=vendor_id, has_render_node=has_render_node))

    assert (finding.gpu is not None) == is_gpu
    assert is_gpu or finding.note == "the machine has no graphics card that can compute"


@pytest.mark.parametrize("error", [ImportError("No library named udev"), OSError("no sysfs")])
def test_a_machine_whose_cards_cannot_be_listed_has_no_gpu(error: Exception) -> None:
    """A worker starts on it; the log says why."""

    def fails() -> list[DrmCard]:
        raise error

    finding = find_gpu(RAM, fails)

    assert (finding.gpu, finding.read_available_bytes()) == (None, None)
    assert str(error) in str(finding.note)


@pytest.mark.parametrize(
    ("model", "vendor_id", "name"),
    [
        ("Navi 31 [Radeon RX 7900 XT]", AMD, "AMD Radeon RX 7900 XT"),
        (
            "Alder Lake-P Integrated Graphics Controller",
            INTEL,
            "Intel Alder Lake-P Integrated Graphics Controller",
        ),
        (None, AMD, "AMD GPU 0x744c"),
        (None, None, "v3d GPU 0x744c"),
    ],
)
def test_a_card_has_a_name_for_people(
    tmp_path: Path, model: str | None, vendor_id: int | None, name: str
) -> None:
    """As it is sold, else by maker and number, else by driver."""
    card = a_card(tmp_path, vendor_id=vendor_id, model=model, device_id=0x744C, driver="v3d")

    gpu = found(card).gpu

    assert gpu is not None
    assert gpu.name == name


@pytest.mark.parametrize(
    ("nvml", "note"),
    [
        (None, "pip install 'tiepoint[nvidia]'"),
        (FakeNvml({}, has_driver=False), "NVML Shared Library Not Found"),
        (FakeNvml({"0000:02:00.0": (GIB, 0)}), "does not answer for the card at 0000:01:00.0: Not Found"),
        (FakeNvml({"0000:01:00.0": (0, 0)}), "has 0 bytes"),
    ],
)
def test_nvidias_card_is_unknown_without_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None, note: str
) -> None:
    """Dedicated, of unknown size, never another card's; the note names the cause and the cure."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    finding = found(a_card(tmp_path, vendor_id=NVIDIA))

    assert finding.gpu is not None
    assert (finding.gpu.is_uma, finding.gpu.memory_total_bytes) == (False, None)
    assert (finding.read_available_bytes(), note in str(finding.note)) == (None, True)


def test_nvidias_driver_is_asked_for_the_one_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cards, again at each reading; what it does not answer is unknown."""
    nvml = FakeNvml({"0000:01:00.0": (8 * GIB, GIB), "0000:02:00.0": (24 * GIB, 0)})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    finding = found(a_card(tmp_path, vendor_id=NVIDIA))

    first = finding.read_available_bytes()
    nvml.cards["0000:01:00.0"] = (8 * GIB, 6 * GIB)
    second = finding.read_available_bytes()
    nvml.cards["0000:01:00.0"] = (8 * GIB, -1)
    third = finding.read_available_bytes()
    del nvml.cards["0000:01:00.0"]

    assert (first, second, third, finding.read_available_bytes()) == (7 * GIB, 2 * GIB, None, None)
    assert set(nvml.asked) == {"0000:01:00.0"}


def test_nvml_is_not_loaded_for_other_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is NVIDIA's driver; a card that tells its size in sysfs needs none of it."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    cards = [
        a_card(tmp_path / "intel", vendor_id=INTEL),
        a_card(tmp_path / "files", {VRAM: GIB, USED: 0}, vendor_id=NVIDIA),
    ]

    assert [found(card).note for card in cards] == [None, None]


def test_a_snapshot_holds_what_is_free_of_the_card(tmp_path: Path) -> None:
    """Capacity less use of the same card; of shared memory nothing is said."""
    dedicated = found(a_card(tmp_path / "card", {VRAM: 8 * GIB, USED: 3 * GIB}))
    shared = found(a_card(tmp_path / "card2", vendor_id=INTEL))
    root = a_proc(tmp_path / "proc")

    snapshots = [
        capture_snapshot(root, lambda: 0, read_gpu_available_bytes=finding.read_available_bytes)
        for finding in (dedicated, shared)
    ]

    assert [snapshot.gpu_memory_available_bytes for snapshot in snapshots] == [5 * GIB, None]


@pytest.mark.parametrize("policy_name", list(PolicyName))
@pytest.mark.parametrize(
    ("files", "vendor_id", "reserve_bytes", "budget_bytes"),
    [
        ({VRAM: 8 * GIB, USED: 2 * GIB}, AMD, GIB, 5 * GIB),
        ({VRAM: 8 * GIB}, AMD, GIB, None),
        ({}, INTEL, 0, 0),
        ({VRAM: "?"}, AMD, 0, None),
    ],
    ids=["dedicated", "use-unknown", "shared", "size-unknown"],
)
def test_both_policies_hold_for_every_card(
    tmp_path: Path,
    policy_name: PolicyName,
    files: dict[str, int | str],
    vendor_id: int,
    reserve_bytes: int,
    budget_bytes: int | None,
) -> None:
    """One slot, an eighth of a known size kept back, and the budget that a snapshot leaves."""
    finding = found(a_card(tmp_path, files, vendor_id=vendor_id))
    profile = a_profile(gpu=finding.gpu)
    policy = named(policy_name, profile)
    governor = a_governor(profile=profile, policy=policy)

    governor.decide(a_snapshot(gpu_memory_available_bytes=finding.read_available_bytes()), Estimate(), "kind")

    assert (violations(policy, profile), policy.gpu_slots) == ((), 1)
    assert policy.gpu_memory_reserve_bytes == reserve_bytes
    assert governor.availability().budget.gpu_memory_bytes == budget_bytes
