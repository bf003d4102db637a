"""Workers share a machine only where their partitions add up to it at most."""

from typing import Any

import pytest

from worker.partitions import Machine, Partition, free_name, refusal

GIB = 2**30
PC = Machine(memory_bytes=16 * GIB, cpus=8)


def part(gib: int | None = None, cpus: int | None = None, **changes: Any) -> Partition:
    """Return a worker's partition; nothing given is the whole machine."""
    memory_bytes = None if gib is None else gib * GIB
    return Partition(**{"name": "pc1", "queue": "lab", "memory_bytes": memory_bytes, "cpus": cpus, **changes})


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (part(12, 6), True),
        (part(13, 6), False),
        (part(12, 7), False),
        (part(12), False),
        (part(cpus=6), False),
        (part(), False),
    ],
)
def test_memory_and_cpus_add_up_to_the_machine_at_most(wanted: Partition, *, fits: bool) -> None:
    """4 GiB and 2 CPUs are taken; what is not partitioned is all there is."""
    assert (refusal(PC, [part(4, 2)], wanted) is None) is fits


def test_one_byte_too_many_is_too_many() -> None:
    """The pair of the sums that just fit."""
    wanted = part(cpus=1, memory_bytes=12 * GIB + 1)

    assert refusal(PC, [part(4, 2)], wanted) is not None


@pytest.mark.parametrize("running", [part(4), part(cpus=2)])
def test_beside_a_half_partitioned_worker_nothing_fits(running: Partition) -> None:
    """It may use all of the dimension that it was given no part of."""
    assert refusal(PC, [running], part(4, 2)) is not None


@pytest.mark.parametrize("wanted", [part(), part(4, 2), part(64, 64)])
def test_the_first_worker_always_fits(wanted: Partition) -> None:
    """A partition beyond the machine is lowered to it, as the governor does."""
    assert refusal(PC, [], wanted) is None


def test_a_partition_beyond_the_machine_counts_as_all_of_it() -> None:
    """Not as more."""
    assert "at most" not in (refusal(PC, [part(64, 64)], part(1, 1)) or "")


def test_a_second_whole_worker_is_told_how_both_fit() -> None:
    """Who is there, what does not fit, and options that can be copied."""
    assert refusal(PC, [part()], part()) == (
        "this machine (16 GiB, 8 CPUs) already has worker `pc1` (all of it), and another (all of it) does "
        "not fit beside it; start both with --memory and --cpus, e.g. --memory 8GiB --cpus 4 each"
    )


BOX = Machine(memory_bytes=4 * GIB, cpus=1, name="this container", cgroup="box")


def test_a_refusal_names_the_limit() -> None:
    """Else somebody with 16 GiB would wonder where they are."""
    text = refusal(BOX, [part(cgroups=("box",))], part(cgroups=("box",))) or ""

    assert text.startswith("this container (limited to 4 GiB, 1 CPU) already has worker `pc1`")


@pytest.mark.parametrize(
    ("cgroups", "fits"), [((), True), (("other",), True), (("other", "box"), False), (None, False)]
)
def test_a_limit_is_shared_by_those_below_it(cgroups: tuple[str, ...] | None, *, fits: bool) -> None:
    """A worker in another container takes nothing of this one's; one that is not known may."""
    running = part(4, 1, cgroups=cgroups)

    assert (refusal(BOX, [running], part(1, 1, cgroups=("box",))) is None) is fits


def test_the_machine_is_shared_by_all() -> None:
    """Whatever limits them."""
    assert refusal(PC, [part(8, 4, cgroups=("box",))], part(8, 4, cgroups=("other",))) is None
    assert refusal(PC, [part(8, 4, cgroups=("box",))], part(9, 4, cgroups=("other",))) is not None


def test_where_something_is_left_that_is_told() -> None:
    """Nobody needs to restart what runs."""
    text = refusal(PC, [part(4, 1), part(4, 2, name="pc1-2")], part(9)) or ""

    assert "has worker `pc1` (4 GiB, 1 CPU) and worker `pc1-2` (4 GiB, 2 CPUs)" in text
    assert "another (9 GiB, all CPUs) does not fit" in text
    assert text.endswith("start it with at most --memory 8GiB --cpus 5, which is what is left")


@pytest.mark.parametrize(("left_bytes", "told"), [(GIB, "at most --memory 1024MiB"), (GIB - 1, "start both")])
def test_a_rest_in_which_no_job_has_room_is_not_offered(left_bytes: int, told: str) -> None:
    """A worker with half a gigabyte would be refused in turn, for being too small."""
    running = part(cpus=2, memory_bytes=PC.memory_bytes - left_bytes)

    assert told in (refusal(PC, [running], part()) or "")


def test_the_options_that_are_told_fit() -> None:
    """For amounts that are no round numbers too."""
    odd = Machine(memory_bytes=3 * GIB + 5, cpus=3)

    assert "--memory 1536MiB --cpus 1 each" in (refusal(odd, [part()], part()) or "")
    assert refusal(odd, [part(cpus=1, memory_bytes=GIB * 3 // 2)], part(1, 2)) is None


def test_more_workers_than_cpus_are_told_to_stop_one() -> None:
    """No option would help."""
    small = Machine(memory_bytes=16 * GIB, cpus=2)

    assert "stop one of them" in (refusal(small, [part(1, 1), part(1, 1)], part(1, 1)) or "")


@pytest.mark.parametrize(
    ("taken", "name"),
    [([], "pc1"), (["pc1"], "pc1-2"), (["pc1", "pc1-2"], "pc1-3"), (["pc1-2"], "pc1"), (["pc2"], "pc1")],
)
def test_a_name_that_is_taken_gets_the_first_free_number(taken: list[str], name: str) -> None:
    """The first worker of a machine is called after it."""
    assert free_name("pc1", [part(name=other) for other in taken], "lab") == name


def test_names_differ_within_a_queue_only() -> None:
    """A local run has a queue of its own."""
    assert free_name("pc1", [part()], "another") == "pc1"


def test_a_long_name_stays_within_its_limit() -> None:
    """64 characters, number included."""
    name = free_name("a" * 64, [part(name="a" * 64)], "lab")

    assert name == "a" * 62 + "-2"
