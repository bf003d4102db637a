"""Tests of the books: sums, handles, ids."""

import pytest

from governor.budget import Charge, Need
from governor.errors import InvariantError
from governor.ledger import Ledger, Reservation, ReservationState
from governor.model import UINT64_MAX, Decision, DecisionReason, Resources, Verdict

CHARGE = Charge(
    memory=Need(fixed_bytes=100, per_item_bytes=10), gpu_memory=Need(fixed_bytes=5, per_item_bytes=1)
)
START = Decision(
    verdict=Verdict.START,
    reason=DecisionReason.IN_FULL,
    detail="",
    batch=4,
    cpu_threads=2,
    gpu_slots=1,
    io_slots=1,
)
WAIT = Decision(verdict=Verdict.WAIT, reason=DecisionReason.SLOTS_BUSY, detail="")


def open_in(ledger: Ledger) -> Reservation:
    """Reserve a batch of 4 in a ledger."""
    return ledger.open("kind", START, CHARGE, ledger.close)


def test_a_reservation_is_charged_and_given_back() -> None:
    """The sums are those of the one grant, then zero."""
    ledger = Ledger()
    reservation = open_in(ledger)

    charged = ledger.reserved

    assert charged == Resources(memory_bytes=140, gpu_memory_bytes=9, cpu_threads=2, gpu_slots=1, io_slots=1)
    assert (reservation.id, reservation.kind, reservation.grant.memory_bytes) == (1, "kind", 140)
    assert ledger.close(reservation)
    assert (ledger.reserved, ledger.active_reservations) == (Resources(), 0)
    assert reservation.state is ReservationState.RELEASED


def test_a_handle_closes_once_and_only_in_its_own_ledger() -> None:
    """A foreign handle with the same id is not taken for one's own."""
    ledger, other = Ledger(), Ledger()
    mine, foreign = open_in(ledger), open_in(other)

    assert not ledger.close(foreign)
    assert (ledger.close(mine), ledger.close(mine)) == (True, False)
    assert (other.active_reservations, foreign.state) == (1, ReservationState.ACTIVE)


def test_a_shrink_lowers_the_charge_once() -> None:
    """The batch and its memory go down, threads and slots stay."""
    ledger = Ledger()
    reservation = open_in(ledger)

    assert ledger.shrink(reservation, 3)
    assert (reservation.grant.batch, reservation.grant.memory_bytes) == (3, 130)
    assert (reservation.grant.gpu_memory_bytes, reservation.grant.cpu_threads) == (8, 2)
    assert (ledger.reserved.memory_bytes, ledger.reserved.gpu_memory_bytes) == (130, 8)
    assert not ledger.shrink(reservation, 2)


@pytest.mark.parametrize(("batch", "is_shrunk"), [(0, False), (1, True), (3, True), (4, False), (5, False)])
def test_a_shrink_only_goes_down_to_one(batch: int, is_shrunk: bool) -> None:  # noqa: FBT001
    """No growth, no standing still, no empty batch."""
    ledger = Ledger()

    assert ledger.shrink(open_in(ledger), batch) is is_shrunk
    ledger.check()


def test_a_released_or_foreign_handle_does_not_shrink() -> None:
    """Only what is active here can."""
    ledger = Ledger()
    released = open_in(ledger)
    ledger.close(released)

    assert not ledger.shrink(released, 1)
    assert not ledger.shrink(open_in(Ledger()), 1)
    assert ledger.reserved == Resources()


def test_the_last_id_is_the_largest_64_bit_number() -> None:
    """G-D01: it is valid; after it there is none, and nothing is charged."""
    ledger = Ledger(next_id=UINT64_MAX)
    last = open_in(ledger)
    charged = ledger.reserved

    assert (last.id, ledger.is_exhausted) == (UINT64_MAX, True)
    with pytest.raises(InvariantError):
        open_in(ledger)
    assert (ledger.reserved, ledger.active_reservations) == (charged, 1)
    assert ledger.close(last)


def test_a_refusal_cannot_be_reserved() -> None:
    """Only START and REDUCE are charged."""
    with pytest.raises(InvariantError):
        Ledger().open("kind", WAIT, CHARGE, lambda _: True)


def test_a_block_releases_whatever_happens_in_it() -> None:
    """An exception passes through, the reservation does not stay."""
    ledger = Ledger()

    with pytest.raises(ZeroDivisionError), open_in(ledger):
        raise ZeroDivisionError

    assert ledger.active_reservations == 0


def test_wrong_books_are_noticed() -> None:
    """The check would find sums that drifted, or a dead handle that is still listed."""
    drifted, dead = Ledger(), Ledger()
    open_in(drifted)
    drifted._reserved = Resources()
    open_in(dead)._state = ReservationState.RELEASED

    with pytest.raises(InvariantError, match="add up to"):
        drifted.check()
    with pytest.raises(InvariantError, match="RELEASED"):
        dead.check()
