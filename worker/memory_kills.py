"""Decides which deaths by SIGKILL were kills for want of memory: proven, suspected, or neither.

The kernel counts such kills per cgroup, by whatever limit they come about; it
does not say whom it killed. So a death is proven by a step of the counter of
the worker's own cgroup between the batch's start and its end, and each step
proves one death. Does not read the counters itself (:mod:`governor.cgroups`).
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from governor.cgroups import Limits, oom_kills
from governor.procfs import read_oom_kills
from worker.deaths import Death, Ending, plain_death

CODE_BYTES = 64 * 2**20
"""The kernel's figure for a dead process holds the library code that the batch has mapped; this much is not
taken for a need of the job."""

ReadCount = Callable[[], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillCounts:
    """How many processes the kernel has killed for want of memory; None = unknown."""

    of_cgroup: int | None
    of_machine: int | None

    def have_grown_since(self, before: Self) -> bool:
        """Tell whether it has killed since; unknown has not."""
        pairs = ((before.of_cgroup, self.of_cgroup), (before.of_machine, self.of_machine))
        return any(then is not None and now is not None and now > then for then, now in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedChild:
    """What is known of a dead child."""

    status: int
    """As wait() gave it."""
    is_unasked: bool
    """We did not have it killed."""
    before: KillCounts
    """The counts when it was given its last batch (or was born)."""
    reserved_bytes: int = 0
    """Of the batch that it had; 0 = it had none."""
    peak_bytes: int | None = None

    @property
    def is_puzzling(self) -> bool:
        """Tell whether somebody unknown has killed it."""
        return self.is_unasked and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class MemoryKills:
    """The kernel's counters, and how much of them is explained; main thread only."""

    def __init__(self, of_cgroup: ReadCount, of_machine: ReadCount) -> None:
        self._of_cgroup = of_cgroup
        self._of_machine = of_machine
        self._explained = 0
        """Kills in the cgroup up to this number are those of deaths judged before."""

    @classmethod
    def within(cls, limits: Limits) -> Self:
        """Return the counters of this process's cgroup, and those of its machine."""
        return cls(of_cgroup=partial(oom_kills, limits), of_machine=_of_machine)

    def counts(self) -> KillCounts:
        """Read the counters; the machine's only where the cgroup has none."""
        of_cgroup = self._of_cgroup()
        return KillCounts(of_cgroup=of_cgroup, of_machine=self._of_machine() if of_cgroup is None else None)

    def judge(self, ended: Sequence[EndedChild]) -> list[Death]:
        """Return how each of these children died, which were heard of together.

        Are there more deaths than steps of the counter, no single one is proven: the counter does not
        say whose they are.
        """
        puzzling = [child for child in ended if child.is_puzzling]
        now = self.counts() if puzzling else KillCounts(of_cgroup=None, of_machine=None)
        are_proven = self._explain(puzzling, now.of_cgroup)
        return [_death(child, now, is_proven=are_proven and child.is_puzzling) for child in ended]

    def _explain(self, puzzling: Sequence[EndedChild], now: int | None) -> bool:
        """Tell whether each death has a step of its own, after its batch's start; use those steps up."""
        starts = [child.before.of_cgroup for child in puzzling]
        known = [start for start in starts if start is not None]
        if now is None or len(known) < len(starts):
            return False
        step = self._explained
        for start in sorted(known):
            step = max(step, start) + 1
        if step > now:
            return False
        self._explained = step
        return True


def _of_machine() -> int | None:
    try:
        return read_oom_kills(Path("/proc"))
    except (OSError, ValueError):
        return None


def _death(child: EndedChild, now: KillCounts, *, is_proven: bool) -> Death:
    death = plain_death(child.status, child.peak_bytes)
    if is_proven:
        cause = "killed by the kernel: out of memory (proven)"
        return replace(death, ending=Ending.OUT_OF_MEMORY, cause=cause)
    if child.is_puzzling and _is_likely(child, now):
        cause = f"{death.cause} (out of memory suspected)"
        return replace(death, ending=Ending.OUT_OF_MEMORY_SUSPECTED, cause=cause)
    return death


def _is_likely(child: EndedChild, now: KillCounts) -> bool:
    """Tell whether memory may be why: a counter has grown, or the job used more than was reserved.

    The latter without the former is the work of a program that kills before
    the kernel does (systemd-oomd, earlyoom), or of a person.
    """
    has_overused = (
        child.reserved_bytes > 0
        and child.peak_bytes is not None
        and child.peak_bytes > child.reserved_bytes + CODE_BYTES
    )
    return has_overused or now.have_grown_since(child.before)
