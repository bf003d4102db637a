"""A name is another's only where its lease is seen to be renewed, and more often than an outage explains."""

import pytest

from worker import lease
from worker.namesakes import SILENCE_OF_THE_DEAD_MS, Namesakes, NameTakenError


@pytest.fixture
def namesakes() -> Namesakes:
    """Return a watch that has seen nothing yet."""
    return Namesakes("pc1")


def test_nobody_is_nobody(namesakes: Namesakes) -> None:
    """Its lease may end while we watch."""
    assert namesakes.look({}, 0)


@pytest.mark.parametrize("left_ms", [1, 200, 600_000])
def test_a_lease_that_has_not_ended_may_be_a_living_nodes_at_first(
    namesakes: Namesakes, left_ms: int
) -> None:
    """However little of it is left: it may be shorter than ours."""
    assert not namesakes.look({"pc1|a": 1000 + left_ms}, 1000)


def test_a_lease_that_nobody_renews_is_a_dead_nodes(namesakes: Namesakes) -> None:
    """However long it is: nobody waits for its end."""
    looks = [namesakes.look({"pc1|a": 600_000}, now_ms) for now_ms in (0, 3000, 5999, 6000)]

    assert looks == [False, False, False, True]


def test_the_living_renew_before_they_are_taken_for_dead() -> None:
    """With time for a renewal that fails and is tried again."""
    assert lease._LONGEST_PAUSE_SECONDS * 1.25 * 1000 < SILENCE_OF_THE_DEAD_MS


def test_two_renewals_are_a_living_node(namesakes: Namesakes) -> None:
    """The sentence says what to do."""
    namesakes.look({"pc1|a": 9000}, 0)
    namesakes.look({"pc1|a": 12_000}, 3000)

    with pytest.raises(NameTakenError, match=r"called `pc1` already .* another --name"):
        namesakes.look({"pc1|a": 15_000}, 6000)


def test_one_prolongation_may_be_an_outage_of_the_server(namesakes: Namesakes) -> None:
    """After which the dead get one lease more, once."""
    namesakes.look({"pc1|a": 9000}, 0)
    looks = [namesakes.look({"pc1|a": 13_000}, now_ms) for now_ms in (4000, 9999, 10_000)]

    assert looks == [False, False, True]


def test_several_leases_are_told_apart(namesakes: Namesakes) -> None:
    """A worker that crashes again and again leaves one each time: none of them was renewed twice."""
    namesakes.look({"pc1|a": 9000, "pc1|b": 8000}, 0)
    namesakes.look({"pc1|a": 9000, "pc1|b": 12_000, "pc1|c": 12_500}, 4000)
    looks = [namesakes.look({"pc1|c": 16_000}, now_ms) for now_ms in (8000, 13_999, 14_000)]

    assert looks == [False, False, True]
