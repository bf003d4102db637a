"""A small project does not wait for the whole of a large one; counted in jobs, not in time."""

import pytest

from tests.integration.conftest import Cluster, wait_until
from tests.integration.fair_kinds import EARLY, LATE

KIND_MODULES = '["tests.integration.fair_kinds"]'
LARGE, SMALL = 40, 4


def send(cluster: Cluster, kind: str, project: str, numbers: range) -> None:
    """Send jobs of a project, as a plan would push them."""
    for number in numbers:
        place = {"project": project, "stage": "match", "item": str(number)}
        cluster.send(kind, kwargs={"number": number, "log": cluster.run_log}, headers=place)


@pytest.mark.parametrize(("kind_of_small", "kind_of_large"), [(EARLY, LATE), (LATE, EARLY)])
def test_projects_in_different_stages_take_turns(
    cluster: Cluster, kind_of_small: str, kind_of_large: str
) -> None:
    """The small one is done when about as many jobs of the large one have run, whoever is further."""
    send(cluster, kind_of_large, "large", range(LARGE))
    send(cluster, kind_of_small, "small", range(100, 100 + SMALL))
    cluster.start_worker(cpus=1, kind_modules=KIND_MODULES)
    wait_until(lambda: len(cluster.runs()) == LARGE + SMALL, "all have run")

    order = [number for number, _, _ in cluster.runs()]
    large_before_small_was_done = [number for number in order[: order.index(100 + SMALL - 1)] if number < 100]
    assert len(large_before_small_was_done) <= SMALL + 1


def test_within_a_list_jobs_run_in_the_order_they_were_pushed(cluster: Cluster) -> None:
    """There the size of the windows is what bounds the wait."""
    send(cluster, LATE, "large", range(LARGE))
    send(cluster, LATE, "small", range(100, 100 + SMALL))
    cluster.start_worker(cpus=1, kind_modules=KIND_MODULES)
    wait_until(lambda: len(cluster.runs()) == LARGE + SMALL, "all have run")

    assert [number for number, _, _ in cluster.runs()] == [*range(LARGE), *range(100, 100 + SMALL)]
