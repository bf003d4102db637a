"""Tests of the reading of the machine, on fake /proc trees."""

from pathlib import Path

import pytest

from governor.cgroups import find_limits
from governor.errors import SnapshotError
from governor.snapshot import capture_snapshot
from tests.unit.governor.builders import GIB, MEMINFO, a_proc
from tests.unit.governor.cgroup_trees import a_v2_tree, pressure, v2_memory


def test_a_snapshot_holds_all_readings(tmp_path: Path) -> None:
    """Kilobytes become bytes, and the line `some` is read, not `full`."""
    snapshot = capture_snapshot(a_proc(tmp_path), lambda: 42)

    assert snapshot.captured_at_ns == 42
    assert (snapshot.memory_available_bytes, snapshot.memory_free_bytes) == (10 * GIB, GIB)
    assert snapshot.swap_free_bytes == 2 * GIB
    assert (snapshot.cpu_psi_percent, snapshot.memory_psi_percent, snapshot.io_psi_percent) == (
        12.5,
        0.5,
        3.0,
    )
    assert (snapshot.swapped_in_pages, snapshot.swapped_out_pages) == (7, 9)
    assert (snapshot.load_averages, snapshot.gpu_memory_available_bytes) == ((0.5, 0.25, 0.1), None)


@pytest.mark.parametrize("line", ["MemAvailable", "MemFree", "SwapFree"])
@pytest.mark.parametrize("damage", ["Gone", ": -1 kB #"])
def test_a_missing_or_malformed_mandatory_line_raises(tmp_path: Path, line: str, damage: str) -> None:
    """Without its memory a machine is not decided on."""
    root = a_proc(tmp_path, meminfo=MEMINFO.replace(f"{line}:", f"{line}{damage}:"))

    with pytest.raises(SnapshotError, match=line):
        capture_snapshot(root, lambda: 0)


@pytest.mark.parametrize("content", [None, "", "\x80"])
def test_an_unreadable_meminfo_raises(tmp_path: Path, content: str | None) -> None:
    """A missing, empty or undecodable file is the same refusal."""
    with pytest.raises(SnapshotError):
        capture_snapshot(a_proc(tmp_path, meminfo=content), lambda: 0)


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("some avg10=0.00 avg60=0.00\n", 0.0),
        ("some avg10=100.00 avg60=0.00\n", 100.0),
        ("some avg10=100.01 avg60=0.00\n", None),
        ("some avg10=-0.01 avg60=0.00\n", None),
        ("some avg10=nan avg60=0.00\n", None),
        ("full avg10=5.00 avg60=0.00\n", None),
        ("", None),
        (None, None),
    ],
)
@pytest.mark.parametrize("resource", ["cpu", "memory", "io"])
def test_psi_is_known_only_within_0_and_100(
    tmp_path: Path, resource: str, text: str | None, percent: float | None
) -> None:
    """Anything else is unknown, and unknown is not zero."""
    snapshot = capture_snapshot(a_proc(tmp_path, **{f"pressure_{resource}": text}), lambda: 0)

    assert getattr(snapshot, f"{resource}_psi_percent") == percent


@pytest.mark.parametrize("text", [None, "", "pswpin 1\n", "pswpout 1\n", "pswpin x\npswpout 1\n"])
def test_swap_counters_are_known_together_or_not_at_all(tmp_path: Path, text: str | None) -> None:
    """Half a reading would look like no growth."""
    snapshot = capture_snapshot(a_proc(tmp_path, vmstat=text), lambda: 0)

    assert (snapshot.swapped_in_pages, snapshot.swapped_out_pages) == (None, None)


@pytest.mark.parametrize("text", [None, "", "high\n"])
def test_an_unreadable_load_is_unknown(tmp_path: Path, text: str | None) -> None:
    """The load averages are for people; their absence stops nothing."""
    assert capture_snapshot(a_proc(tmp_path, loadavg=text), lambda: 0).load_averages is None


def test_the_time_is_taken_after_the_mandatory_reading(tmp_path: Path) -> None:
    """The clock sees meminfo already read, and the pressure files not yet."""
    root = a_proc(tmp_path)

    def clock() -> int:
        (root / "meminfo").unlink()
        (root / "pressure" / "cpu").unlink()
        return 5

    snapshot = capture_snapshot(root, clock)

    assert (snapshot.captured_at_ns, snapshot.memory_available_bytes) == (5, 10 * GIB)
    assert snapshot.cpu_psi_percent is None


@pytest.mark.parametrize(
    ("limit_bytes", "available_bytes"),
    [(11 * GIB - 1, 10 * GIB - 1), (11 * GIB, 10 * GIB), (20 * GIB, 10 * GIB)],
)
def test_a_limit_lowers_what_is_available(tmp_path: Path, limit_bytes: int, available_bytes: int) -> None:
    """The least of the machine's and what each limit leaves; never more than the machine has."""
    limits = find_limits(a_v2_tree(tmp_path / "limits", {"": v2_memory(limit_bytes, GIB)}))
    snapshot = capture_snapshot(a_proc(tmp_path / "proc"), lambda: 0, limits=limits)

    assert snapshot.memory_available_bytes == available_bytes


def test_a_limit_that_cannot_be_read_is_no_snapshot(tmp_path: Path) -> None:
    """As with the machine's own memory."""
    limits = find_limits(a_v2_tree(tmp_path / "limits", {"": v2_memory(GIB)}))
    (tmp_path / "limits" / "cgroup" / "memory.current").unlink()

    with pytest.raises(SnapshotError, match=r"memory\.current"):
        capture_snapshot(a_proc(tmp_path / "proc"), lambda: 0, limits=limits)


@pytest.mark.parametrize(("own_percent", "percent"), [(12.49, 12.5), (12.51, 12.51), (None, 12.5)])
def test_the_larger_pressure_counts(tmp_path: Path, own_percent: float | None, percent: float) -> None:
    """That of the machine, or that of the own cgroup; an unknown one does not hide the other."""
    files = {"cgroup.type": "domain\n"}
    if own_percent is not None:
        files["cpu.pressure"] = pressure(own_percent)
    limits = find_limits(a_v2_tree(tmp_path / "limits", {"": files}))
    snapshot = capture_snapshot(a_proc(tmp_path / "proc"), lambda: 0, limits=limits)

    assert snapshot.cpu_psi_percent == percent


def test_the_own_pressure_is_enough(tmp_path: Path) -> None:
    """Some runtimes hide the machine's."""
    limits = find_limits(
        a_v2_tree(tmp_path / "limits", {"": {"cgroup.type": "domain\n", "io.pressure": pressure(3)}})
    )
    snapshot = capture_snapshot(a_proc(tmp_path / "proc", pressure_io=None), lambda: 0, limits=limits)

    assert snapshot.io_psi_percent == 3
