"""Tests of the formats of /proc that no snapshot reads (the others: test_snapshot.py)."""

from pathlib import Path

import pytest

from governor.procfs import read_oom_kills
from tests.unit.governor.builders import a_proc


def test_the_machines_kills_are_counted(tmp_path: Path) -> None:
    """Since boot, in whatever cgroup."""
    assert read_oom_kills(a_proc(tmp_path, vmstat="oom_kill_memcg 9\noom_kill 4\n")) == 4


@pytest.mark.parametrize("text", ["", "oom_kill x\n", "oom_kill_memcg 9\n"])
def test_kills_that_are_not_told_are_unknown(tmp_path: Path, text: str) -> None:
    """Old kernels have no such line."""
    with pytest.raises(ValueError, match="no readable oom_kill"):
        read_oom_kills(a_proc(tmp_path, vmstat=text))
