"""The scale bench measures what it says, on clusters and queues of a size for a test."""

import pytest

from tests.bench.scale import fresh_place, missed_by_claim, missed_on_a_trickle, missed_under_load
from tests.bench.scale_load import Effort, busy_ratio, measure_load, measure_trickle, nodes_of_each_two
from tests.bench.scale_scripts import Depths, measure_scripts
from tests.bench.scale_window import images_for, measure_window


def test_a_cluster_under_load_claims_each_message_once_and_leaves_nothing() -> None:
    """Eight nodes of two processes; how busy they are depends on the machine, so that is not asserted."""
    with fresh_place() as place:
        effort = Effort(nodes=8, processes=2, jobs_per_thread=4, job_seconds=(0.2, 0.3), settle_seconds=0.5)
        figures = measure_load(place, effort)

    assert figures.done_once == figures.jobs == 4 * figures.threads
    assert figures.claims_per_message <= 1.2
    assert figures.leftovers.keys == ()


def test_a_single_message_does_not_bring_every_idle_node_to_claim() -> None:
    """Eight idle nodes of two processes; that they take turns is held by the tests of the loop itself."""
    effort = Effort(
        nodes=8, processes=2, messages=15, idle_seconds=0.5, settle_seconds=0.5, gaps_per_second=50
    )
    with fresh_place() as place:
        figures = measure_trickle(place, effort)

    assert figures.done_once == figures.messages == 15
    assert 1 <= figures.claims_per_message <= 4
    assert figures.leftovers.keys == ()


def test_two_jobs_for_two_idle_nodes_are_one_for_each() -> None:
    """Though each has room for both; a machine that stalls for long may let one node have two."""
    with fresh_place() as place:
        nodes = nodes_of_each_two(place, rounds=9, seconds=0.1)

    assert len(nodes) == 9
    assert nodes.count(2) >= 5


def test_what_scripts_do_does_not_grow_with_what_waits() -> None:
    """Where the machine is busy a script may take any time: what is told is a time of each, and a ratio."""
    with fresh_place() as place:
        figures = measure_scripts(place.server, Depths(shallow=100, deep=2_000, rounds=3, calls=20))

    assert set(figures.scripts) == {"claim", "settle", "peek", "renew"}
    assert all(time.ratio > 0 for time in figures.scripts.values())


@pytest.mark.parametrize(("pairs", "images"), [(1, 2), (3, 3), (4, 4), (1_000_000, 1415)])
def test_a_project_of_so_many_pairs_has_just_enough_images(pairs: int, images: int) -> None:
    """Each is paired with each."""
    assert images_for(pairs) == images


def test_most_pairs_of_a_large_project_wait_outside_of_redis() -> None:
    """Though all is planned that may be before the first pair is done; nothing is left of them at the end."""
    with fresh_place() as place:
        figures = measure_window(place, pairs=4_000, nodes=1)

    assert figures.pairs == 4_005
    assert figures.most_waiting < figures.pairs / 2
    assert figures.kept_keys <= 4


def test_time_that_a_batch_had_a_thread_counts_as_busy() -> None:
    """Only within the two moments; two threads for half of the time of four are a quarter."""
    spans = [{"start_ns": -5, "end_ns": 5, "threads": 2}, {"start_ns": 20, "end_ns": 30, "threads": 2}]

    assert busy_ratio(spans, 4, 0, 10) == 0.25


def test_each_wanted_figure_is_judged_at_its_bound() -> None:
    """Just as wanted is no miss, just beyond is one."""
    as_wanted = missed_by_claim(1.25) + missed_under_load(0.95, 1.2) + missed_on_a_trickle(4.0)
    beyond = missed_by_claim(1.26) + missed_under_load(0.949, 1.21) + missed_on_a_trickle(4.01)

    assert as_wanted == []
    assert [sentence.partition(":")[0] for sentence in beyond] == [
        "claim",
        "consumers",
        "consumers",
        "trickle",
    ]
