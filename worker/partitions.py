"""Decides whether one more worker fits its machine beside those that run there. Pure.

Each worker promises its part of the machine to its jobs: two that promise more
than there is would be an overcommit that neither of them can see. Does not
cover how the others are found (:mod:`worker.machine`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_GIB = 2**30
_MIB = 2**20
_LEAST_TOLD_BYTES = _GIB
"""Less is left over rather than free: no policy leaves much of it to jobs, some refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What one worker takes of its machine; None is all of it."""

    name: str
    queue: str
    """Names the queue it serves, so that names need to differ within one queue only."""
    memory_bytes: int | None = None
    cpus: int | None = None
    cgroups: tuple[str, ...] | None = ()
    """Keys of the cgroups that limit it; None: not known, it may be any."""
    incarnation: str = ""
    """What its lease is called; what a dead worker held is given back by that. Empty: not known."""
    file: str = ""
    """Tells the file that says this from a copy, and from itself on a share that other machines see, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What workers share: a machine, or what a cgroup's limit leaves of it."""

    memory_bytes: int
    cpus: int
    name: str = "this machine"
    cgroup: str | None = None
    """The key of the cgroup; None: the whole machine."""

    def is_shared_by(self, worker: Partition) -> bool:
        """Tell whether a worker takes its part of this."""
        return self.cgroup is None or worker.cgroups is None or self.cgroup in worker.cgroups

    def described(self) -> str:
        """Return e.g. "this container (limited to 2 GiB, 4 CPUs)"."""
        limited = "" if self.cgroup is None else "limited to "
        return f"{self.name} ({limited}{_memory(self.memory_bytes)}, {_cpu_count(self.cpus)})"


def refusal(machine: Machine, running: Sequence[Partition], wanted: Partition) -> str | None:
    """Return why a worker does not fit beside those that run, and what would; None where it fits."""
    running = [other for other in running if machine.is_shared_by(other)]
    memory_left_bytes = machine.memory_bytes - sum(_memory_bytes(machine, other) for other in running)
    cpus_left = machine.cpus - sum(_cpus(machine, other) for other in running)
    fits = _memory_bytes(machine, wanted) <= memory_left_bytes and _cpus(machine, wanted) <= cpus_left
    if fits:  # The first one always: a partition beyond the machine is lowered to it.
        return None
    what = f"{machine.described()} already has "
    what += _and([f"worker `{other.name}` ({_part(machine, other)})" for other in running])
    what += f", and another ({_part(machine, wanted)}) does not fit beside it"
    return f"{what}; {_cure(machine, len(running), memory_left_bytes, cpus_left)}"


def free_name(wished: str, running: Iterable[Partition], queue: str) -> str:
    """Return the name, with a number behind it where a worker of the queue has it: pc1, pc1-2, pc1-3."""
    taken = {other.name for other in running if other.queue == queue}
    name, number = wished, 1
    while name in taken:
        number += 1
        ending = f"-{number}"
        name = wished[: 64 - len(ending)] + ending
    return name


def _memory_bytes(machine: Machine, partition: Partition) -> int:
    return min(partition.memory_bytes or machine.memory_bytes, machine.memory_bytes)


def _cpus(machine: Machine, partition: Partition) -> int:
    return min(partition.cpus or machine.cpus, machine.cpus)


def _part(machine: Machine, partition: Partition) -> str:
    """Return e.g. "all of it", "4 GiB, 1 CPU" or "4 GiB, all CPUs"."""
    if partition.memory_bytes is None and partition.cpus is None:
        return "all of it"
    memory = "all memory" if partition.memory_bytes is None else _memory(_memory_bytes(machine, partition))
    cpus = "all CPUs" if partition.cpus is None else _cpu_count(_cpus(machine, partition))
    return f"{memory}, {cpus}"


def _cpu_count(cpus: int) -> str:
    return f"{cpus} CPU{'s' * (cpus > 1)}"


def _cure(machine: Machine, workers: int, memory_left_bytes: int, cpus_left: int) -> str:
    if memory_left_bytes >= _LEAST_TOLD_BYTES and cpus_left >= 1:
        left = f"--memory {_option(memory_left_bytes)} --cpus {cpus_left}"
        return f"start it with at most {left}, which is what is left"
    parts = workers + 1
    if parts > machine.cpus:
        return "stop one of them first: each worker needs a CPU of its own"
    both = "both" if parts == 2 else f"all {parts}"
    each = f"--memory {_option(machine.memory_bytes // parts)} --cpus {machine.cpus // parts}"
    return f"start {both} with --memory and --cpus, e.g. {each} each"


def _memory(amount_bytes: int) -> str:
    if amount_bytes < _GIB:
        return f"{amount_bytes / _MIB:.0f} MiB"
    return f"{amount_bytes / _GIB:.1f} GiB".replace(".0 ", " ")


def _option(amount_bytes: int) -> str:
    """Return an amount, rounded down, as ``--memory`` takes it."""
    if amount_bytes >= 2 * _GIB:
        return f"{amount_bytes // _GIB}GiB"
    return f"{amount_bytes // _MIB}MiB"


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
