"""What a dead child's last batch had of memory, by the kernel's figure for the whole process."""

import pytest

from worker.spawner import _peak_bytes


@pytest.mark.parametrize(("resident_bytes", "peak_bytes"), [(99, None), (100, None), (101, 1)])
def test_the_peak_of_a_dead_batch_is_what_came_on_top_of_its_start(
    resident_bytes: int, peak_bytes: int | None
) -> None:
    """Nothing on top is not measured: the kernel's figure may lag behind."""
    assert _peak_bytes(resident_bytes, 100) == peak_bytes


def test_the_peak_of_a_child_that_had_no_batch_is_unknown() -> None:
    """It has noted no start; what it is itself is no batch's."""
    assert _peak_bytes(100, 0) is None
