"""How a process ended is told in words, and remembered by its message."""

import json
import signal
from typing import Any

import pytest

from worker.deaths import Ending, LastEnd, plain_death

MIB = 1 << 20
END = LastEnd(ending=Ending.OUT_OF_MEMORY, node="pc.1", reserved_bytes=64 * MIB, peak_bytes=900 * MIB)


@pytest.mark.parametrize(
    ("status", "ending", "cause"),
    [
        (int(signal.SIGKILL), Ending.KILLED, "killed by SIGKILL"),
        (int(signal.SIGSEGV) | 0x80, Ending.KILLED, "killed by SIGSEGV"),
        (40, Ending.KILLED, "killed by signal 40"),
        (3 << 8, Ending.EXITED, "ended with exit status 3"),
    ],
)
def test_a_wait_status_is_told_in_words(status: int, ending: Ending, cause: str) -> None:
    """A core dump is the same signal; of the real-time ones most have no name."""
    death = plain_death(status, 5)

    assert (death.ending, death.cause, death.peak_bytes) == (ending, cause, 5)


@pytest.mark.parametrize("peak_bytes", [None, 900 * MIB])
def test_what_a_message_remembers_is_read_again(peak_bytes: int | None) -> None:
    """Flat: the scripts find its end by its braces."""
    end = LastEnd(ending=Ending.KILLED, node="pc.1", reserved_bytes=1, peak_bytes=peak_bytes)
    text = end.to_text()

    assert LastEnd.from_history(json.loads(text)) == end
    assert (text.count("{"), text.count("}")) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"ending": "tired"},
        {"ending": []},
        {"node": 5},
        {"reserved_bytes": "1"},
        {"reserved_bytes": True},
        {"peak_bytes": 1.5},
        {"more": 1},
    ],
)
def test_a_last_end_of_another_form_is_a_value_error(changes: dict[str, Any]) -> None:
    """Messages come from anybody."""
    with pytest.raises(ValueError, match=r"last end|not a valid Ending"):
        LastEnd.from_history({**END.to_dict(), **changes})


def test_a_last_end_without_its_fields_is_a_value_error() -> None:
    """Each of them is missed."""
    for name in ("ending", "node", "reserved_bytes"):
        with pytest.raises(ValueError, match="other fields"):
            LastEnd.from_history({key: value for key, value in END.to_dict().items() if key != name})


def test_the_sentence_names_cause_node_and_both_amounts() -> None:
    """What a user needs to choose a machine."""
    assert END.sentence() == (
        "the kernel killed it for want of memory (proven) on node pc.1, "
        "with 64.0 MiB reserved and at least 0.87 GiB in use"
    )
