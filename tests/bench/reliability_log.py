"""Reads what the jobs of the reliability bench have told, and counts what has become of them."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.reliability_body import END, LEFT_BEHIND, START


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step of one run of a job."""

    step: str
    job: int
    node: str
    pid: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What has become of some jobs; each is done, failed, waiting or lost."""

    jobs: int
    starts: int
    """Runs begun."""
    done: int
    """Jobs that have run to their end."""
    failed: int
    """Jobs that the queue has given up, and says so."""
    waiting: int
    """Jobs that the queue still holds, waiting or taken."""
    lost: int
    """Jobs that nobody knows any more."""
    ended_twice: int
    """Jobs that have run to their end more than once."""
    doubled: int
    """Ends of a job that the queue has taken as its result, though it had one already."""


class RunLog:
    """The file that jobs write to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        """Return all that is told so far."""
        text = self.path.read_text() if self.path.exists() else ""
        return [_line(line) for line in text.splitlines()]

    def starts(self) -> list[Line]:
        """Return the begun runs."""
        return self._of(START)

    def ends(self) -> list[Line]:
        """Return the runs that came to their end."""
        return self._of(END)

    def left_behind(self) -> list[Line]:
        """Return the processes that jobs have started."""
        return self._of(LEFT_BEHIND)

    def is_any_running(self) -> bool:
        """Tell whether a process that lives has begun a job and not ended it."""
        last = {line.pid: line for line in self.lines() if line.step != LEFT_BEHIND}
        return any(line.step == START and psutil.pid_exists(line.pid) for line in last.values())

    def _of(self, step: str) -> list[Line]:
        return [line for line in self.lines() if line.step == step]


def tally(
    log: RunLog, jobs: int, *, failed: Collection[int], held: Collection[int], accepted: int | None = None
) -> Tally:
    """Count; jobs are numbered from 0, ``held`` are those that the queue has a message of.

    ``accepted``: how many results the queue has taken; None: one of each end.
    """
    ends = Counter(line.job for line in log.ends())
    open_jobs = set(range(jobs)) - set(ends) - set(failed)
    waiting = open_jobs & set(held)
    return Tally(
        jobs=jobs,
        starts=len(log.starts()),
        done=len(ends),
        failed=len(set(failed)),
        waiting=len(waiting),
        lost=len(open_jobs - waiting),
        ended_twice=sum(count > 1 for count in ends.values()),
        doubled=max(0, (ends.total() if accepted is None else accepted) - len(ends)),
    )


def _line(text: str) -> Line:
    step, job, node, pid, at_ns = text.split()
    return Line(step=step, job=int(job), node=node, pid=int(pid), at_ns=int(at_ns))
