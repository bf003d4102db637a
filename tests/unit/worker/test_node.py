"""What a node may use of its machine, and what it tells of what it cannot take."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from governor.model import Decision, DecisionReason, Estimate, Verdict
from tests.unit.governor.builders import GIB, MEMINFO, a_proc
from tests.unit.governor.cgroup_trees import a_v2_tree, v2_memory
from worker import node
from worker.machine import PROMISE_BYTES, PROMISE_OFFSET, Place, take_place
from worker.node import Node, check_partition
from worker.settings import Settings, WrongSettingError

MIB = 2**20


@pytest.mark.parametrize(("mib", "is_enough"), [(512, False), (513, True)])
def test_a_partition_must_leave_something_for_jobs(mib: int, *, is_enough: bool) -> None:
    """The reserve of a dedicated node is 512 MiB at least."""
    settings = Settings(memory_bytes=mib * MIB, profile="dedicated")

    if is_enough:
        check_partition(settings)
    else:
        with pytest.raises(WrongSettingError, match=r"leaves nothing of 0\.50 GiB"):
            check_partition(settings)


@pytest.mark.parametrize(
    ("partition_mib", "cure"),
    [
        (None, "raise the limit of this container, which is 400 MiB"),
        (400, "raise the limit of this container, which is 400 MiB"),
        (399, "raise --memory or leave it out"),
    ],
)
def test_what_is_too_small_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_mib: int | None, cure: str
) -> None:
    """A larger --memory would not help in a container that has no more."""
    a_proc(tmp_path / "proc")
    monkeypatch.setattr(node, "_PROC_ROOT", a_v2_tree(tmp_path, {"": v2_memory(400 * MIB)}))
    memory_bytes = None if partition_mib is None else partition_mib * MIB

    with pytest.raises(WrongSettingError, match=cure):
        check_partition(Settings(memory_bytes=memory_bytes, profile="dedicated"))


def test_a_machine_that_is_too_small_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to raise."""
    meminfo = MEMINFO.replace("16777216", "524288")
    monkeypatch.setattr(node, "_PROC_ROOT", a_proc(tmp_path / "proc", meminfo=meminfo))

    with pytest.raises(WrongSettingError, match="use a machine with more memory"):
        check_partition(Settings(profile="dedicated"))


def test_a_limit_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, without a traceback."""
    a_proc(tmp_path / "proc")
    monkeypatch.setattr(node, "_PROC_ROOT", a_v2_tree(tmp_path, {"": v2_memory("lots")}))

    with pytest.raises(WrongSettingError, match="cannot read the memory limit"):
        check_partition(Settings(profile="dedicated"))


def _refusal(needed_bytes: int | None) -> Decision:
    reason = DecisionReason.IMPOSSIBLE_ON_NODE
    return Decision(verdict=Verdict.REJECT, reason=reason, detail="", needed_memory_bytes=needed_bytes)


@pytest.mark.parametrize(("needed_mib", "option"), [(768, "1024MiB"), (769, "1088MiB")])
def test_the_partition_that_would_do_is_told(needed_mib: int, option: str) -> None:
    """Interactive keeps a quarter: three quarters of 1 GiB are 768 MiB."""
    small = Node(Settings(memory_bytes=640 * MIB, profile="interactive"))

    assert small.memory_option_for(_refusal(needed_mib * MIB)) == option


def test_without_a_partition_or_a_machine_that_large_no_option_is_told() -> None:
    """It would not help."""
    whole, partition = Node(Settings()), Node(Settings(memory_bytes=1024 * MIB))

    assert whole.memory_option_for(_refusal(768 * MIB)) is None
    assert partition.memory_option_for(_refusal(2**60)) is None
    assert partition.memory_option_for(_refusal(None)) is None


@pytest.mark.parametrize(("age_ns", "is_reused"), [(250_000_000, True), (250_000_001, False)])
def test_a_reading_is_used_again_for_250_ms(
    monkeypatch: pytest.MonkeyPatch, age_ns: int, *, is_reused: bool
) -> None:
    """Each new one advances the pressure, and costs."""
    one, now_ns = Node(Settings()), time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    first = one.snapshot()
    now_ns += age_ns

    assert (one.snapshot() is first) is is_reused


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Node, Place]]:
    """Yield a node of 8 GiB, of 10 that are available, and its place; a second worker is beside it."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    settings = Settings(lock_folder=tmp_path / "workers", memory_bytes=8 * GIB, cpus=1, profile="dedicated")
    places = take_place(settings), take_place(settings.model_copy(update={"memory_bytes": MIB}))
    monkeypatch.setattr(node, "_PROC_ROOT", a_proc(tmp_path / "proc"))
    yield Node(settings, places[0]), places[0]
    for place in places:
        os.close(place.descriptor)


def test_with_each_reading_a_node_tells_what_its_jobs_do_not_hold_yet(
    pair: tuple[Node, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other workers of the machine leave that alone, and no more."""
    one, place = pair
    one.governor.reserve(one.snapshot(), Estimate(memory_fixed_bytes=3 * GIB), "kind")
    told = [int(os.pread(place.descriptor, PROMISE_BYTES, PROMISE_OFFSET))]
    monkeypatch.setattr(one.held_memory, "read_bytes", lambda: GIB)
    one._capture()
    told.append(int(os.pread(place.descriptor, PROMISE_BYTES, PROMISE_OFFSET)))

    assert told == [3 * GIB, 2 * GIB]


def test_beside_another_worker_a_node_looks_again(pair: tuple[Node, Place], tmp_path: Path) -> None:
    """Its last reading may not miss yet what the other's jobs have taken."""
    one, place = pair
    other = next(path for path in place.path.parent.iterdir() if path != place.path)
    with other.open("r+b") as file:
        os.pwrite(file.fileno(), b"0" * PROMISE_BYTES, PROMISE_OFFSET)
    old = one.snapshot()
    (tmp_path / "proc" / "meminfo").write_text(MEMINFO.replace("10485760", "2097152"))

    assert one.governor.budget_on(old).memory_bytes == 2 * GIB - one.policy.memory_reserve_bytes
