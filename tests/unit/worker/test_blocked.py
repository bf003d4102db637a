"""A job is BLOCKED when no live node has room for it; what is not known of a node blocks nothing."""

from typing import Any

import pytest

from governor.model import Estimate
from worker.blocked import IMPOSSIBLE_SECONDS, UNFIT_SECONDS, Blocked, Scarce, WaitingJob, blocked, gathered
from worker.live_nodes import LiveNode

GIB = 1 << 30
GPU = {"gpu_slots": 1, "gpu_memory_fixed_bytes": 2 * GIB}


def a_node(name: str = "attic", gib: int = 8, **changes: Any) -> LiveNode:
    """Build a node without a GPU that has been idle for a minute, all of it free."""
    values: dict[str, Any] = {
        "name": name,
        "budget_memory_bytes": gib * GIB,
        "offers_memory_bytes": gib * GIB,
        "budget_gpu_memory_bytes": 0,
        "offers_gpu_memory_bytes": 0,
        "offers_gpu_slots": 0,
        "idle_seconds": 60,
        "waits_seconds": 60,
    }
    return LiveNode(**(values | changes))


def a_gpu_node(name: str = "render", gpu_gib: int | None = 4, **changes: Any) -> LiveNode:
    """Build a node with a card of its own memory."""
    gpu_bytes = None if gpu_gib is None else gpu_gib * GIB
    card: dict[str, Any] = {"gpu": "card", "budget_gpu_slots": 1, "offers_gpu_slots": 1, "gpu_matching": True}
    memory = {"budget_gpu_memory_bytes": gpu_bytes, "offers_gpu_memory_bytes": gpu_bytes}
    return a_node(name, **(card | memory | changes))


def a_waiting_job(gib: int = 3, waited_seconds: float | None = 60.0, **estimate: Any) -> WaitingJob:
    """Build a job that needs so much memory."""
    return WaitingJob(
        job_id="1",
        kind="noop",
        project="p",
        name="a.jpg",
        estimate=Estimate(memory_fixed_bytes=gib * GIB, **estimate),
        waited_seconds=waited_seconds,
    )


def judged(job: WaitingJob, *nodes: LiveNode) -> Blocked:
    """Return why a job is blocked; it must be."""
    why = blocked(job, nodes)
    if why is None:
        pytest.fail("it is not blocked")
    return why


def test_what_fits_a_node_to_the_byte_is_not_blocked() -> None:
    """However small the others are; one byte more is."""
    nodes = [a_node(gib=1), a_node(gib=3)]
    one_more = WaitingJob(job_id="1", kind="noop", estimate=Estimate(memory_fixed_bytes=3 * GIB + 1))

    assert blocked(a_waiting_job(3), nodes) is None
    assert blocked(one_more, nodes) is not None


def test_the_sentence_names_need_best_node_and_offer() -> None:
    """The best one is that with the most."""
    why = judged(a_waiting_job(12), a_node("cellar", 2), a_node("attic", 8))

    assert why.sentence() == "BLOCKED: noop of a.jpg: needs 12.0 GiB, the best node (attic) offers 8.00 GiB"
    assert (why.scarce, why.is_impossible) == (Scarce.MEMORY, True)


def test_without_a_gpu_anywhere_a_job_that_needs_one_is_blocked() -> None:
    """Whatever memory there is."""
    why = judged(a_waiting_job(1, **GPU), a_node(gib=64))

    assert why.cause() == "needs a GPU, the best node (attic) offers none: no live node has one it can use"


def test_a_gpu_that_cannot_match_is_none_for_a_job_that_matches_on_it() -> None:
    """No node without OpenCL takes such jobs."""
    job = WaitingJob(job_id="1", kind="gpu", estimate=Estimate(gpu_slots=1), needs_opencl=True)

    assert judged(job, a_gpu_node(gpu_matching=False)).scarce is Scarce.GPU_SLOTS
    assert blocked(job, [a_gpu_node()]) is None


def test_too_little_gpu_memory_is_told_as_such() -> None:
    """Of the nodes that have a GPU."""
    why = judged(a_waiting_job(1, **GPU), a_node(gib=64), a_gpu_node(gpu_gib=1))

    assert why.cause() == "needs 2.00 GiB of GPU memory, the best node (render) offers 1.00 GiB"


def test_memory_counts_only_on_nodes_that_have_the_gpu() -> None:
    """Much of one here and of the other there does not help."""
    why = judged(a_waiting_job(16, **GPU), a_node("attic", 64), a_gpu_node(gib=8))

    assert (why.node, why.scarce, why.offered) == ("render", Scarce.MEMORY, 8 * GIB)


def test_on_unified_memory_the_gpus_bytes_are_needed_of_the_ram() -> None:
    """3 and 2 GiB do not fit into 4; into 5 they do."""
    small, enough = (a_gpu_node(gpu_gib=0, gib=gib, gpu_is_uma=True) for gib in (4, 5))

    assert judged(a_waiting_job(3, **GPU), small).needed == 5 * GIB
    assert blocked(a_waiting_job(3, **GPU), [enough]) is None


def test_what_is_unknown_blocks_nothing() -> None:
    """A card whose memory cannot be read; a node of an older version."""
    assert blocked(a_waiting_job(1, **GPU), [a_gpu_node(gpu_gib=None)]) is None
    assert blocked(a_waiting_job(99), [LiveNode(name="old", idle_seconds=1)]) is None


def test_without_live_nodes_nothing_is_blocked() -> None:
    """The project waits for its first one."""
    assert blocked(a_waiting_job(99), []) is None


@pytest.mark.parametrize(
    ("seconds", "is_told"), [(IMPOSSIBLE_SECONDS - 0.1, False), (IMPOSSIBLE_SECONDS, True)]
)
def test_what_is_impossible_is_told_after_some_seconds(seconds: float, is_told: bool) -> None:  # noqa: FBT001 - a table
    """Fewer than ten: it must be looked at and told by then."""
    assert (blocked(a_waiting_job(99, waited_seconds=seconds), [a_node()]) is not None) is is_told
    assert IMPOSSIBLE_SECONDS < 10


def test_the_head_of_a_list_is_told_at_once() -> None:
    """Nobody knows since when it has waited, and no node may ever look at it."""
    assert blocked(a_waiting_job(99, waited_seconds=None), [a_node()]) is not None


@pytest.mark.parametrize(
    ("changes", "waited_seconds", "is_told"),
    [
        ({"idle_seconds": 30}, 30.0, True),
        ({"idle_seconds": 29}, 30.0, False),
        ({"idle_seconds": 30}, 29.9, False),
        ({"idle_seconds": 30, "waits_seconds": 30}, None, True),
        ({"idle_seconds": 30, "waits_seconds": 29}, None, False),
        ({"idle_seconds": 30, "budget_memory_bytes": 3 * GIB}, 30.0, False),
    ],
)
def test_what_does_not_fit_an_idle_node_for_half_a_minute_is_blocked(
    changes: dict[str, Any],
    waited_seconds: float | None,
    is_told: bool,  # noqa: FBT001 - a table
) -> None:
    """It could run there, but other programs hold the memory."""
    node = a_node(**({"budget_memory_bytes": 2 * GIB} | changes))

    assert (blocked(a_waiting_job(3, waited_seconds), [node]) is not None) is is_told
    assert UNFIT_SECONDS == 30


def test_a_node_that_could_and_is_busy_unblocks() -> None:
    """Its jobs will end; those that never could do not matter."""
    idle, busy = a_node(budget_memory_bytes=GIB), a_node("busy", budget_memory_bytes=GIB, idle_seconds=0)

    assert judged(a_waiting_job(3), idle, a_node("tiny", gib=1, idle_seconds=0)).is_impossible is False
    assert blocked(a_waiting_job(3), [idle, busy]) is None


def test_gpu_memory_held_by_other_programs_blocks_too() -> None:
    """With what the card has left now."""
    why = judged(a_waiting_job(1, **GPU), a_gpu_node(budget_gpu_memory_bytes=GIB))

    assert why.cause() == (
        "needs 2.00 GiB of GPU memory, the best node (render) offers 1.00 GiB now, though it runs nothing: "
        "other programs hold the rest"
    )


def test_blocked_jobs_of_one_kind_and_cause_are_told_as_one() -> None:
    """By the one that needs the most, with their number."""
    found = [
        judged(a_waiting_job(gib, **parts), a_node(gib=1)) for gib, parts in ((9, {}), (12, {}), (1, GPU))
    ]
    slots, memory = sorted(gathered(found), key=lambda one: one.scarce)

    assert memory.sentence().startswith("BLOCKED: noop of a.jpg and 1 more jobs: needs 12.0 GiB")
    assert (memory.jobs, slots.jobs) == (2, 1)
    assert memory.to_dict()["scarce"] == "memory_bytes"
