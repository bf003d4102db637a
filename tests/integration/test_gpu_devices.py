"""Tests of the GPU of a node on mock devices: libudev and sysfs are real, the cards are umockdev's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import REPOSITORY, Cluster, wait_until
from tests.mock_cards import (
    GIB,
    INTEL,
    NVIDIA,
    MockCard,
    an_amd_card,
    changeable_cards,
    needs_umockdev,
    under_umockdev,
)
from worker import keys

pytestmark = needs_umockdev

VRAM, USED, GTT = "mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total"
AN_APU = MockCard(number=0, device="0x1681", files={VRAM: GIB // 2, USED: GIB // 4, GTT: 8 * GIB})


def seen(folder: Path, *cards: MockCard, nvml: str | None = None) -> dict[str, Any]:
    """Return what a process makes of these cards; ``nvml`` is what its module ``pynvml`` holds."""
    library = folder / "library"
    library.mkdir()
    # Whatever is installed here, the process finds ours: a module that works, or one that cannot be imported.
    (library / "pynvml.py").write_text(nvml or "raise ImportError('No module named pynvml')")
    output = subprocess.run(
        [*under_umockdev(folder, *cards), sys.executable, "-m", "tests.integration.gpu_probe"],
        env={**os.environ, "PYTHONPATH": f"{library}:{REPOSITORY}"},
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize(
    ("card", "is_uma", "total_bytes", "available_bytes"),
    [
        (an_amd_card(total=24 * GIB, used=2 * GIB), False, 24 * GIB, 22 * GIB),
        (AN_APU, True, None, None),
        (MockCard(number=0, vendor=INTEL, device="0x9a49"), True, None, None),
        (MockCard(number=0, vendor=NVIDIA, device="0x2484"), False, None, None),
        (MockCard(number=0, vendor=None), True, None, None),
        (an_amd_card(total="24 GiB"), False, None, None),
        (an_amd_card(used="-1"), False, 8 * GIB, None),
        (an_amd_card(used=None), False, 8 * GIB, None),
    ],
    ids=[
        "AMD",
        "AMD-APU",
        "Intel",
        "NVIDIA-without-files",
        "a-board-without-PCI",
        "total-is-no-number",
        "use-is-no-number",
        "use-is-missing",
    ],
)
def test_a_card_is_what_its_driver_tells(
    tmp_path: Path, card: MockCard, *, is_uma: bool, total_bytes: int | None, available_bytes: int | None
) -> None:
    """Outputs and render nodes beside it are no cards; both policies hold with it."""
    found = seen(tmp_path, card)

    assert found["gpu"] | {"name": ""} == {
        "index": 0,
        "name": "",
        "is_uma": is_uma,
        "memory_total_bytes": total_bytes,
        "pci_id": "" if card.vendor is None else f"{card.vendor}:{card.device}".replace("0x", ""),
        "driver": "",  # No driver is bound to a mock device.
    }
    assert found["available_bytes"] == available_bytes
    assert (found["note"] is None) == (is_uma or available_bytes is not None)
    assert (found["gpu_slots"], found["gpu_reserve_bytes"]) == ([1, 1], [(total_bytes or 0) // 8] * 2)
    assert found["violations"] == []


def test_udev_names_the_card(tmp_path: Path) -> None:
    """The name that is printed on its box stands in brackets in udev's database."""
    card = MockCard(number=0, vendor=NVIDIA, model="GA104 [GeForce RTX 3070]")

    assert seen(tmp_path, card)["gpu"]["name"] == "NVIDIA GeForce RTX 3070"


def test_a_card_without_its_use_is_never_answered_for_by_another(tmp_path: Path) -> None:
    """The higher card tells all, and is not asked."""
    found = seen(tmp_path, an_amd_card(0, total=4 * GIB, used=None), an_amd_card(1))

    assert (found["gpu"]["index"], found["gpu"]["memory_total_bytes"]) == (0, 4 * GIB)
    assert (found["available_bytes"], "cannot be read" in found["note"]) == (None, True)


def test_cards_are_counted_by_number_not_by_name(tmp_path: Path) -> None:
    """card10 comes after card2; a console chip that only displays does not count."""
    console = MockCard(number=0, vendor="0x1a03", has_render_node=False)

    assert seen(tmp_path, an_amd_card(9), console, an_amd_card(2))["gpu"]["index"] == 2


def test_a_machine_without_cards_has_no_gpu(tmp_path: Path) -> None:
    """It says so in one sentence, and both policies hold."""
    found = seen(tmp_path)

    assert (found["gpu"], found["available_bytes"]) == (None, None)
    assert (found["gpu_slots"], found["violations"]) == ([0, 0], [])
    assert found["note"] == "the machine has no graphics card that can compute"


def test_nvidias_driver_is_asked_for_the_card_of_the_same_address(tmp_path: Path) -> None:
    """Other cards of the driver are not answered for it."""
    card = MockCard(number=0, vendor=NVIDIA)
    cards = {"0000:07:00.0": (24 * GIB, 0), card.address: (8 * GIB, 3 * GIB)}
    fake = f"import sys; from tests.fake_nvml import FakeNvml; sys.modules['pynvml'] = FakeNvml({cards})"

    found = seen(tmp_path, card, nvml=fake)

    assert (found["gpu"]["memory_total_bytes"], found["available_bytes"]) == (8 * GIB, 5 * GIB)
    assert found["note"] is None


def waits_of(cluster: Cluster) -> str:
    """Return what the node says it waits for (as of its last renewal); empty: nothing."""
    text = cluster.server.hget(keys.node("one"), "waits_for")
    return text.decode() if isinstance(text, bytes) else ""


def test_a_gpu_job_waits_while_others_fill_the_card(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign process holds 60 % of the card: the job waits, others run, then it starts."""
    card = an_amd_card(used=8 * GIB * 60 // 100)
    with changeable_cards(tmp_path, card) as (root, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        cluster.start_worker(kind_modules='["tests.integration.gpu_kinds"]')
        cluster.send("noop.gpu", kwargs={"number": 1, "log": cluster.run_log})
        cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
        wait_until(lambda: cluster.runs() and waits_of(cluster), "one job has run, the other waits")
        waits, ran_meanwhile = waits_of(cluster), cluster.runs()

        (root / f"sys{card.device_path}" / USED).write_text(f"{GIB}\n")
        wait_until(lambda: len(cluster.runs()) == 2, "the job that waited has run")
        cluster.workers[0].stop()

    assert waits == "WAIT INSUFFICIENT_MEMORY: needs 4.00 GiB of GPU memory, 2.20 GiB free of 2.20 GiB"
    assert [number for number, _, _ in ran_meanwhile] == [2]
    assert "gpu_found" in cluster.workers[0].log
