"""Nodes are shown to people in rows that are never cut, with what each waits for in one line."""

from io import StringIO
from typing import Any

from rich.console import Console

from governor import budget
from governor.model import Policy
from tests.unit.governor.builders import GIB, a_dedicated_gpu, a_policy, a_profile, a_snapshot
from worker.live_nodes import LiveNode
from worker.node_tables import limit_lines, show_node, show_nodes, show_this_machine
from worker.partitions import Partition
from worker.this_machine import Offer, ThisMachine

WAITS = "WAIT CPU_PSI: CPU pressure 36 % >= 20 %"
LAPTOP = LiveNode(
    name="lap[top]",
    pressure="GREEN",
    budget_memory_bytes=8 * GIB,
    reserved_memory_bytes=2 * GIB,
    budget_cpu_threads=4,
    waits_for=WAITS,
    waits_seconds=12,
)
RENDER = LiveNode(
    name="render",
    gpu="AMD Radeon RX 7900",
    budget_gpu_memory_bytes=18 * GIB,
    reserved_gpu_memory_bytes=GIB,
    budget_gpu_slots=1,
    active_reservations=1,
)


def shown(show: Any, *arguments: Any, **options: Any) -> list[str]:
    """Return the lines of what is shown, as on a narrow console unless told otherwise."""
    settings: dict[str, Any] = {"file": StringIO(), "width": 40}
    console = Console(**(settings | options))
    show(console, *arguments)
    file: Any = console.file
    return str(file.getvalue()).splitlines()


def test_each_node_is_a_row_that_a_file_does_not_cut() -> None:
    """Free of what there is, for each resource."""
    header, laptop, render, waits = shown(show_nodes, [LAPTOP, RENDER])

    assert header.startswith("node")
    assert "lap[top]  waits 12 s" in laptop
    assert "6.00 GiB of 8.00 GiB" in laptop
    assert "works" in render
    assert "AMD Radeon RX 7900  17.0 GiB of 18.0 GiB     1 of 1" in render
    assert waits == f"lap[top] waits: {WAITS}"


def test_a_terminal_with_room_gets_a_box() -> None:
    """A name with brackets is no markup there either."""
    lines = shown(show_nodes, [LAPTOP], width=160, force_terminal=True, color_system=None)

    assert any(line.startswith("┏") for line in lines)
    assert any("lap[top]" in line for line in lines)


def test_one_node_is_shown_with_limits_and_decisions() -> None:
    """Each decision with its age and how often it was made."""
    decision = {"age_seconds": 1.23, "times": 4, "kind": "matcher.run", "sentence": WAITS}
    lines = shown(show_node, LAPTOP, [decision], None)

    assert lines[0] == "lap[top]: waits 12 s, pressure GREEN"
    assert lines[-1].split(maxsplit=4) == ["1.2", "s", "4", "matcher.run", WAITS]


def test_a_node_that_does_not_answer_is_told() -> None:
    """Instead of decisions."""
    assert shown(show_node, LAPTOP, None, "it has not answered")[-1] == "it has not answered"
    assert "decided nothing" in shown(show_node, LAPTOP, [], None)[-1]


def test_every_bound_in_force_is_a_sentence() -> None:
    """Those that there are not are left out."""
    limits = {
        "physical_memory_bytes": 16 * GIB,
        "memory_limit_bytes": 4 * GIB,
        "memory_limited_by": "this container",
        "partition_memory_bytes": 2 * GIB,
        "affinity_cpus": 8,
        "quota_cpus": 3,
        "partition_cpus": 2,
    }

    assert limit_lines({}) == []
    assert limit_lines(limits) == [
        "machine: 16.0 GiB of memory",
        "limit: 4.00 GiB of memory, of this container",
        "partition: 2.00 GiB of memory (--memory)",
        "CPUs it may run on: 8",
        "limit: 3 CPUs, by a quota",
        "partition: 2 CPUs (--cpus)",
    ]


def an_offer(policy: Policy, *problems: str) -> Offer:
    """Return what a machine with a card offers with that policy."""
    profile = a_profile(gpu=a_dedicated_gpu())
    now = budget.live_budget(profile, policy, a_snapshot(gpu_memory_available_bytes=GIB))
    return Offer(policy=policy, offers=budget.most(profile, policy), budget=now, problems=problems)


def test_this_machine_is_shown_with_both_profiles_and_its_workers() -> None:
    """And why no worker would start, where one would not."""
    offers = {"interactive": an_offer(a_policy()), "dedicated": an_offer(a_policy(), "it is too small")}
    machine = ThisMachine(
        profile=a_profile(gpu=a_dedicated_gpu()),
        limits={},
        readings=a_snapshot(gpu_memory_available_bytes=GIB),
        offers=offers,
        workers=[Partition(name="attic", queue="secret", memory_bytes=4 * GIB, cgroups=None)],
    )
    lines = shown(show_this_machine, machine)

    assert "GPU: dedicated, 1.00 GiB available of 4.00 GiB" in lines
    assert "dedicated: no worker would start: it is too small" in lines
    assert lines[-1] == "worker attic holds 4.00 GiB, all CPUs"
    assert "secret" not in str(machine.to_dict())
