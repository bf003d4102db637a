"""A dead child's peak is the kernel's figure less what it began with; no signal ends the spawner."""

import signal
import subprocess
import sys

import pytest

from worker.spawner import _peak_bytes, _send


@pytest.mark.parametrize(("resident_bytes", "peak_bytes"), [(99, None), (100, None), (101, 1)])
def test_the_peak_of_a_dead_batch_is_what_came_on_top_of_its_start(
    resident_bytes: int, peak_bytes: int | None
) -> None:
    """Nothing on top is not measured: the kernel's figure may lag behind."""
    assert _peak_bytes(resident_bytes, 100) == peak_bytes


def test_the_peak_of_a_child_that_had_no_batch_is_unknown() -> None:
    """It has noted no start; what it is itself is no batch's."""
    assert _peak_bytes(100, 0) is None


@pytest.mark.parametrize("leads_a_group", [True, False])
def test_a_signal_reaches_a_child_whatever_its_group_and_one_that_is_none_harms_nobody(
    leads_a_group: bool,  # noqa: FBT001 - a table
) -> None:
    """`celery control terminate` takes any number; a job may call setpgid."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(97)"]
    child = subprocess.Popen(command, process_group=0 if leads_a_group else None)
    _send(child.pid, 999, alone=False)
    _send(child.pid, signal.SIGKILL, alone=False)

    assert child.wait(60) == -signal.SIGKILL
