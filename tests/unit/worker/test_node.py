"""What a node may use of its machine, and what it tells of what it cannot take."""

import pytest

from governor.model import Decision, DecisionReason, Verdict
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


def _refusal(needed_bytes: int | None) -> Decision:
    reason = DecisionReason.IMPOSSIBLE_ON_NODE
    return Decision(verdict=Verdict.REJECT, reason=reason, detail="", needed_memory_bytes=needed_bytes)


@pytest.mark.parametrize(("needed_mib", "option"), [(768, "1024MiB"), (769, "1088MiB")])
def test_the_partition_that_would_do_is_told(needed_mib: int, option: str) -> None:
    """Interactive keeps a quarter: three quarters of 1 GiB are 768 MiB."""
    node = Node(Settings(memory_bytes=640 * MIB, profile="interactive"))

    assert node.memory_option_for(_refusal(needed_mib * MIB)) == option


def test_without_a_partition_or_a_machine_that_large_no_option_is_told() -> None:
    """It would not help."""
    whole, partition = Node(Settings()), Node(Settings(memory_bytes=1024 * MIB))

    assert whole.memory_option_for(_refusal(768 * MIB)) is None
    assert partition.memory_option_for(_refusal(2**60)) is None
    assert partition.memory_option_for(_refusal(None)) is None
