"""Shows nodes to people: one row each, one node with its decisions, or this machine.

Boxed on a terminal with room for it, else plain and never cut: every sentence
is one line. Does not read what it shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from governor.model import Gpu, Resources
from governor.wording import in_binary_units
from worker.live_nodes import LiveNode
from worker.this_machine import Offer, ThisMachine

_WIDEST_TABLE_COLUMNS = 300
_UNKNOWN = "unknown"
_NOTHING = "-"


def show_nodes(console: Console, nodes: Sequence[LiveNode]) -> None:
    """Print a row per node: free of budget, for each resource; below it what each waits for."""
    columns = ("node", "state", "batches", "memory free", "threads", "GPU", "GPU memory free", "GPU slots")
    _print_table(console, (*columns, "IO slots", "pressure"), [_row(node) for node in nodes])
    for node in nodes:
        if node.waits_for:
            _say(console, f"{node.name} {node.waiting}")


def show_node(
    console: Console, node: LiveNode, decisions: Sequence[Mapping[str, Any]] | None, problem: str | None
) -> None:
    """Print one node, its limits, and what its governor decided last, newest first."""
    told = node.to_dict()
    rows = [
        ("memory", *_memory_row(told, "memory_bytes")),
        ("CPU threads", *_plain_row(told, "cpu_threads")),
        ("GPU memory", *_memory_row(told, "gpu_memory_bytes")),
        ("GPU slots", *_plain_row(told, "gpu_slots")),
        ("IO slots", *_plain_row(told, "io_slots")),
    ]
    profile = f", profile {node.profile}" if node.profile else ""
    _say(console, f"{node.name}: {_state(node)}{profile}, pressure {node.pressure or _UNKNOWN}")
    _say(console, f"waits for: {node.waits_for or 'nothing'}")
    _say(console, f"GPU: {_gpu_name(node.gpu, is_uma=node.gpu_is_uma)}")
    _print_table(console, ("resource", "free", "reserved", "budget now", "when idle"), rows)
    for line in limit_lines(node.limits):
        _say(console, line)
    if problem is not None:
        _say(console, problem)
    if decisions:
        _print_table(
            console, ("ago", "times", "for", "decision"), [_decision_row(one) for one in decisions], left=4
        )
    elif decisions is not None:
        _say(console, "its governor has decided nothing yet")


def show_this_machine(console: Console, machine: ThisMachine) -> None:
    """Print what a worker started here would see and offer."""
    profile, readings = machine.profile, machine.readings
    memory, cpus = in_binary_units(profile.memory_total_bytes), profile.logical_cpus
    _say(console, f"a worker on this machine has {memory} of memory, {cpus} CPUs ({profile.architecture})")
    for line in limit_lines(machine.limits):
        _say(console, line)
    _say(console, f"GPU: {_gpu_of(profile.gpu, readings.gpu_memory_available_bytes)}")
    available = in_binary_units(readings.memory_available_bytes)
    _say(console, f"now: {available} of memory available; {_pressures(readings.cpu_psi_percent, readings)}")
    columns = ("profile", "memory now", "when idle", "threads", "GPU memory now", "GPU slots", "IO slots")
    _print_table(console, columns, [_offer_row(name, offer) for name, offer in machine.offers.items()])
    for name, offer in machine.offers.items():
        for problem in offer.problems:
            _say(console, f"{name}: no worker would start: {problem}")
    for worker in machine.workers:
        part = "all memory" if worker.memory_bytes is None else in_binary_units(worker.memory_bytes)
        threads = "all CPUs" if worker.cpus is None else f"{worker.cpus} CPUs"
        _say(console, f"worker {worker.name} holds {part}, {threads}")
    if not machine.workers:
        _say(console, "no worker holds this machine")


def limit_lines(limits: Mapping[str, Any]) -> list[str]:
    """Return one sentence per bound in force; a machine that is used as a whole has only its size."""
    lines = []
    if limits.get("physical_memory_bytes"):
        lines.append(f"machine: {in_binary_units(limits['physical_memory_bytes'])} of memory")
    if limits.get("memory_limit_bytes"):
        owner = limits.get("memory_limited_by") or "a cgroup"
        lines.append(f"limit: {in_binary_units(limits['memory_limit_bytes'])} of memory, of {owner}")
    if limits.get("partition_memory_bytes"):
        lines.append(f"partition: {in_binary_units(limits['partition_memory_bytes'])} of memory (--memory)")
    if limits.get("affinity_cpus"):
        lines.append(f"CPUs it may run on: {limits['affinity_cpus']}")
    if limits.get("quota_cpus"):
        lines.append(f"limit: {limits['quota_cpus']} CPUs, by a quota")
    if limits.get("partition_cpus"):
        lines.append(f"partition: {limits['partition_cpus']} CPUs (--cpus)")
    return lines


def _row(node: LiveNode) -> tuple[str, ...]:
    told = node.to_dict()
    return (
        node.name,
        _state(node),
        str(node.active_reservations),
        _memory_of(told["free_memory_bytes"], node.budget_memory_bytes),
        f"{told['free_cpu_threads']} of {node.budget_cpu_threads}",
        _gpu_name(node.gpu, is_uma=node.gpu_is_uma) if node.gpu else _NOTHING,
        _memory_of(told["free_gpu_memory_bytes"], node.budget_gpu_memory_bytes) if node.gpu else _NOTHING,
        f"{told['free_gpu_slots']} of {node.budget_gpu_slots}" if node.gpu else _NOTHING,
        f"{told['free_io_slots']} of {node.budget_io_slots}",
        node.pressure or _UNKNOWN,
    )


def _state(node: LiveNode) -> str:
    """Return e.g. "works", "waits 12 s", "idle 40 s"."""
    if node.active_reservations:
        return "works"
    if node.waits_for:
        return f"waits {node.waits_seconds} s"
    return f"idle {node.idle_seconds} s"


def _memory_row(told: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_memory(told[f"{what}_{name}"]) for what in ("free", "reserved", "budget", "offers"))


def _plain_row(told: Mapping[str, Any], name: str) -> tuple[str, ...]:
    amounts = (told[f"{what}_{name}"] for what in ("free", "reserved", "budget"))
    return (*map(str, amounts), str(told.get(f"offers_{name}") or told[f"budget_{name}"]))


def _memory(amount_bytes: int | None) -> str:
    return _UNKNOWN if amount_bytes is None else in_binary_units(amount_bytes)


def _memory_of(free_bytes: int | None, budget_bytes: int | None) -> str:
    return _UNKNOWN if budget_bytes is None else f"{_memory(free_bytes)} of {_memory(budget_bytes)}"


def _gpu_name(name: str, *, is_uma: bool) -> str:
    if not name:
        return "none"
    return f"{name} (shares the memory)" if is_uma else name


def _gpu_of(gpu: Gpu | None, available_bytes: int | None) -> str:
    if gpu is None:
        return "none"
    named = _gpu_name(gpu.name, is_uma=gpu.is_uma)
    if gpu.is_uma:
        return named
    return f"{named}, {_memory(available_bytes)} available of {_memory(gpu.memory_total_bytes)}"


def _pressures(cpu_percent: float | None, readings: Any) -> str:
    named = (("CPU", cpu_percent), ("memory", readings.memory_psi_percent), ("IO", readings.io_psi_percent))
    told = ", ".join(f"{name} {_UNKNOWN if share is None else f'{share:g} %'}" for name, share in named)
    return f"pressure: {told}"


def _offer_row(name: str, offer: Offer) -> tuple[str, ...]:
    now: Resources = offer.budget
    return (
        name,
        _memory(now.memory_bytes),
        _memory(offer.offers.memory_bytes),
        str(now.cpu_threads),
        _memory(now.gpu_memory_bytes),
        str(now.gpu_slots),
        str(now.io_slots),
    )


def _decision_row(decision: Mapping[str, Any]) -> tuple[str, ...]:
    ago = f"{decision['age_seconds']:.1f} s"
    return ago, str(decision["times"]), str(decision["kind"]), str(decision["sentence"])


def _print_table(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> None:
    """Print a table whose first ``left`` columns are texts and the others numbers."""
    boxed = _boxed(columns, rows, left)
    if console.is_terminal and _width_columns(console, boxed) <= console.width:
        console.print(boxed)
        return
    for line in _plain(columns, rows, left):
        _say(console, line)


def _boxed(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> Table:
    table = Table(box=box.HEAVY_HEAD)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # Names are no markup.
    return table


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return a table as lines that nothing squeezes: rich fits one into the width it thinks there is."""
    lines = [columns, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return ["  ".join(_padded(line, widths, left)).rstrip() for line in lines]


def _padded(line: Sequence[str], widths: Sequence[int], left: int) -> Iterable[str]:
    for place, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield cell.ljust(width) if place < left else cell.rjust(width)


def _width_columns(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=_WIDEST_TABLE_COLUMNS), table).maximum


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)
