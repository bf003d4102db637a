"""A death is called out of memory only where the kernel's own counter proves it."""

import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest

from worker.deaths import Ending
from worker.memory_kills import CODE_BYTES, EndedChild, KillCounts, MemoryKills

SIGKILLED = int(signal.SIGKILL)
EXITED_WITH_1 = 1 << 8
MIB = 1 << 20
PROVEN, SUSPECTED, KILLED = Ending.OUT_OF_MEMORY, Ending.OUT_OF_MEMORY_SUSPECTED, Ending.KILLED


class Counters:
    """The kernel's counters, which a test moves."""

    def __init__(self, of_cgroup: int | None, of_machine: int | None = None) -> None:
        self.of_cgroup = of_cgroup
        self.of_machine = of_machine
        self.kills = MemoryKills(lambda: self.of_cgroup, lambda: self.of_machine)


def a_child(before: KillCounts, *, status: int = SIGKILLED) -> EndedChild:
    """Build a child that nobody of us has killed, and that stayed within its reservation."""
    return EndedChild(
        status=status, is_unasked=True, before=before, reserved_bytes=100 * MIB, peak_bytes=90 * MIB
    )


def endings(kills: MemoryKills, *ended: EndedChild) -> Sequence[Ending]:
    """Judge children that were heard of together."""
    return [death.ending for death in kills.judge(ended)]


@pytest.mark.parametrize(("kills", "ending"), [(0, KILLED), (1, PROVEN)])
def test_a_death_is_proven_by_a_step_of_the_own_counter_since_its_batch_began(
    kills: int, ending: Ending
) -> None:
    """Without one the kernel has not killed it for memory, and nobody says so."""
    counters = Counters(7)
    before = counters.kills.counts()
    counters.of_cgroup = 7 + kills

    [death] = counters.kills.judge([a_child(before)])
    assert death.ending is ending
    assert ("out of memory (proven)" in death.cause) == (ending is PROVEN)


def test_a_kill_before_the_batch_began_proves_nothing() -> None:
    """It was of another process."""
    counters = Counters(7)
    counters.of_cgroup = 8

    assert endings(counters.kills, a_child(counters.kills.counts())) == [KILLED]


@pytest.mark.parametrize(
    "child",
    [
        {"status": EXITED_WITH_1},
        {"status": int(signal.SIGSEGV)},
        {"is_unasked": False},
    ],
    ids=["ended by itself", "crashed", "killed by us"],
)
def test_only_an_unasked_sigkill_is_ever_for_memory(child: dict[str, object]) -> None:
    """The kernel's killer sends no other signal, and what we ordered needs no other cause."""
    counters = Counters(0)
    ended = replace(a_child(counters.kills.counts()), **child)  # type: ignore[arg-type]
    counters.of_cgroup = 1

    [death] = counters.kills.judge([ended])
    assert not death.ending.is_for_memory


@pytest.mark.parametrize(("steps", "expected"), [(0, KILLED), (1, SUSPECTED), (2, PROVEN), (3, PROVEN)])
def test_of_two_deaths_at_once_each_needs_a_step_of_its_own(steps: int, expected: Ending) -> None:
    """One step proves that one of them was, but not which."""
    counters = Counters(0)
    before = counters.kills.counts()
    counters.of_cgroup = steps

    assert endings(counters.kills, a_child(before), a_child(before)) == [expected, expected]


def test_the_steps_of_a_later_batch_are_those_since_its_own_beginning() -> None:
    """Two steps in all, but the second child began after the first of them: each has one."""
    counters = Counters(0)
    early = a_child(counters.kills.counts())
    counters.of_cgroup = 1
    late = a_child(counters.kills.counts())
    counters.of_cgroup = 2

    assert endings(counters.kills, early, late) == [PROVEN, PROVEN]


def test_a_step_that_proved_one_death_proves_no_second() -> None:
    """The other was killed by somebody else a moment later."""
    counters = Counters(0)
    before = counters.kills.counts()
    counters.of_cgroup = 1

    assert endings(counters.kills, a_child(before)) == [PROVEN]
    assert endings(counters.kills, a_child(before)) == [SUSPECTED]


def test_a_second_step_that_was_seen_with_the_first_death_is_there_for_the_second() -> None:
    """The kernel killed both; we heard of one after the other."""
    counters = Counters(0)
    before = counters.kills.counts()
    counters.of_cgroup = 2

    assert endings(counters.kills, a_child(before)) == [PROVEN]
    assert endings(counters.kills, a_child(before)) == [PROVEN]


def test_a_step_that_proved_the_later_of_two_deaths_proves_no_third() -> None:
    """However many steps there were before it: the third batch began after those."""
    counters = Counters(0)
    early = a_child(counters.kills.counts())
    counters.of_cgroup = 5
    late = a_child(counters.kills.counts())
    counters.of_cgroup = 6

    assert endings(counters.kills, early, late) == [PROVEN, PROVEN]
    assert endings(counters.kills, late) == [SUSPECTED]


@pytest.mark.parametrize(("more", "ending"), [(0, KILLED), (1, SUSPECTED)])
def test_without_an_own_counter_the_machines_makes_a_death_suspect_at_most(more: int, ending: Ending) -> None:
    """It counts every process of the machine."""
    counters = Counters(None, 3)
    before = counters.kills.counts()
    counters.of_machine = 3 + more

    assert endings(counters.kills, a_child(before)) == [ending]


def test_with_an_own_counter_the_machines_says_nothing() -> None:
    """Some other program was killed."""
    counters = Counters(0, 3)
    before = counters.kills.counts()
    counters.of_machine = 4

    assert endings(counters.kills, a_child(before)) == [KILLED]


def test_a_counter_that_could_not_be_read_at_the_start_proves_nothing() -> None:
    """Its steps may be from before; and a death beside it is not proven either, for there may be one step."""
    counters = Counters(1)
    known, unknown = a_child(counters.kills.counts()), a_child(KillCounts(of_cgroup=None, of_machine=None))
    counters.of_cgroup = 2

    assert endings(counters.kills, known, unknown) == [SUSPECTED, KILLED]


@pytest.mark.parametrize(("above_bytes", "ending"), [(0, KILLED), (1, SUSPECTED)])
def test_a_killed_job_that_used_far_more_than_its_reservation_is_suspect(
    above_bytes: int, ending: Ending
) -> None:
    """Some programs kill before the kernel does. Library code, which the figure holds, is no ground."""
    counters = Counters(0)
    peak_bytes = 100 * MIB + CODE_BYTES + above_bytes
    ended = replace(a_child(counters.kills.counts()), peak_bytes=peak_bytes)

    assert endings(counters.kills, ended) == [ending]


def test_a_counter_that_cannot_be_read_any_more_proves_nothing() -> None:
    """Unknown is not grown."""
    counters = Counters(0)
    before = counters.kills.counts()
    counters.of_cgroup = None

    assert endings(counters.kills, a_child(before)) == [KILLED]
    assert KillCounts(of_cgroup=0, of_machine=None) == before
