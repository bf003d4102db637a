"""A name is another's only where its lease is seen to be renewed, and more often than an outage explains."""

import pytest

from worker.namesakes import Namesakes, NameTakenError

LEASE_MS = 9000


@pytest.fixture
def namesakes() -> Namesakes:
    """Return a watch that has seen nothing yet."""
    return Namesakes("pc1", LEASE_MS)


@pytest.mark.parametrize(("left_ms", "can_be_alive"), [(4500, True), (4499, False)])
def test_less_than_half_of_a_lease_is_left_to_the_dead(
    namesakes: Namesakes, left_ms: int, *, can_be_alive: bool
) -> None:
    """The living renew with two thirds of it left."""
    assert namesakes.look({"pc1|a": 1000 + left_ms}, 1000) is not can_be_alive


def test_nobody_is_nobody(namesakes: Namesakes) -> None:
    """Its lease may end while we watch."""
    assert namesakes.look({}, 0)


def test_a_lease_that_runs_out_is_outwaited(namesakes: Namesakes) -> None:
    """Its node was killed just after it had renewed."""
    looks = [namesakes.look({"pc1|a": LEASE_MS}, now_ms) for now_ms in (0, 3000, 4500, 4501)]

    assert looks == [False, False, False, True]


def test_two_renewals_are_a_living_node(namesakes: Namesakes) -> None:
    """The sentence says what to do."""
    namesakes.look({"pc1|a": 9000}, 0)
    namesakes.look({"pc1|a": 12_000}, 3000)

    with pytest.raises(NameTakenError, match=r"called `pc1` already .* another --name"):
        namesakes.look({"pc1|a": 15_000}, 6000)


def test_one_prolongation_may_be_an_outage_of_the_server(namesakes: Namesakes) -> None:
    """After which the dead get one lease more, once."""
    namesakes.look({"pc1|a": 9000}, 0)
    namesakes.look({"pc1|a": 13_000}, 4000)

    assert namesakes.look({"pc1|a": 13_000}, 8501)


def test_several_leases_are_told_apart(namesakes: Namesakes) -> None:
    """A worker that crashes again and again leaves one each time: none of them was renewed twice."""
    namesakes.look({"pc1|a": 9000, "pc1|b": 8000}, 0)
    namesakes.look({"pc1|a": 9000, "pc1|b": 12_000, "pc1|c": 12_500}, 4000)

    assert not namesakes.look({"pc1|c": 16_000}, 8000)
    assert namesakes.look({"pc1|c": 16_000}, 11_501)
