"""Holds what is reserved: the handles, their sums, the next id.

Whether something may be reserved is decided in ``governor.admission``. Nothing
here is thread-safe: the governor's lock guards it.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from enum import StrEnum
from types import TracebackType
from typing import Self

from governor.budget import Charge
from governor.errors import InvariantError
from governor.model import UINT64_MAX, Decision, Grant, Resources


class ReservationState(StrEnum):
    """The two states of a reservation; released is final."""

    ACTIVE = "ACTIVE"
    RELEASED = "RELEASED"


class Reservation:
    """The right to use a grant until it is released; made by a governor only.

    As a context manager it is released at the end of the block, whatever
    happens there. Read from any thread; changed only by its governor.
    """

    __slots__ = ("_charge", "_grant", "_id", "_is_shrunk", "_kind", "_release", "_state")

    def __init__(
        self,
        reservation_id: int,
        kind: str,
        grant: Grant,
        charge: Charge,
        release: Callable[["Reservation"], bool],
    ) -> None:
        self._id = reservation_id
        self._kind = kind
        self._grant = grant
        self._charge = charge
        self._release = release
        self._is_shrunk = False
        self._state = ReservationState.ACTIVE

    @property
    def id(self) -> int:
        """The number of this reservation in its governor, 1..2^64-1."""
        return self._id

    @property
    def kind(self) -> str:
        """The job kind it was made for."""
        return self._kind

    @property
    def grant(self) -> Grant:
        """What the batch may use."""
        return self._grant

    @property
    def state(self) -> ReservationState:
        """Whether it still holds."""
        return self._state

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release(self)

    def __repr__(self) -> str:
        return f"<Reservation {self._id} {self._kind} {self._state}: {self._grant}>"


class Ledger:
    """The active reservations of one governor and the sums of their grants.

    Invariant: ``reserved`` equals the sum over ``active``, see :meth:`check`.
    """

    def __init__(self, *, next_id: int = 1) -> None:
        self._next_id = next_id
        self._active: dict[int, Reservation] = {}
        self._reserved = Resources()

    @property
    def reserved(self) -> Resources:
        """The sums of all active grants."""
        return self._reserved

    @property
    def active_reservations(self) -> int:
        """The number of active reservations."""
        return len(self._active)

    @property
    def is_exhausted(self) -> bool:
        """Tell whether the last id has been given away."""
        return self._next_id > UINT64_MAX

    def open(
        self,
        kind: str,
        decision: Decision,
        charge: Charge,
        release: Callable[[Reservation], bool],
    ) -> Reservation:
        """Charge an admitted decision and return its handle.

        Raises:
            InvariantError: no id is left, or the decision admits nothing.
        """
        if self.is_exhausted or not decision.is_admitted:
            msg = f"cannot reserve for {decision.sentence()!r}, next id {self._next_id}"
            raise InvariantError(msg)
        reservation = Reservation(self._next_id, kind, _grant_of(decision, charge), charge, release)
        self._active[reservation.id] = reservation
        self._next_id += 1
        self._reserved = _plus(self._reserved, reservation.grant)
        return reservation

    def holds(self, reservation: Reservation) -> bool:
        """Tell whether this very handle is active here."""
        return self._active.get(reservation.id) is reservation

    def shrink(self, reservation: Reservation, batch: int) -> bool:
        """Lower a reservation to a smaller batch, once; False: nothing changed."""
        is_smaller = 1 <= batch < reservation.grant.batch
        if not self.holds(reservation) or reservation._is_shrunk or not is_smaller:  # noqa: SLF001 - its own
            return False
        smaller = _shrunk(reservation, batch)
        self._reserved = _plus(_minus(self._reserved, reservation.grant), smaller)
        reservation._grant = smaller  # noqa: SLF001 - the ledger is the one writer of its handles
        reservation._is_shrunk = True  # noqa: SLF001
        return True

    def close(self, reservation: Reservation) -> bool:
        """Give a reservation back; False: it was not active here, nothing changed."""
        if not self.holds(reservation):
            return False
        del self._active[reservation.id]
        self._reserved = _minus(self._reserved, reservation.grant)
        reservation._state = ReservationState.RELEASED  # noqa: SLF001 - the one writer
        return True

    def check(self) -> None:
        """Compare the sums with the reservations.

        Raises:
            InvariantError: they differ, an amount is negative or a handle is not active.
        """
        expected = Resources()
        for reservation in self._active.values():
            expected = _plus(expected, reservation.grant)
            if reservation.state is not ReservationState.ACTIVE:
                msg = f"{reservation!r} is in the ledger"
                raise InvariantError(msg)
        amounts = [getattr(self._reserved, field.name) for field in fields(Resources)]
        if expected != self._reserved or min(amounts) < 0:
            msg = f"the sums are {self._reserved}, the reservations add up to {expected}"
            raise InvariantError(msg)


def _grant_of(decision: Decision, charge: Charge) -> Grant:
    return Grant(
        batch=decision.batch,
        cpu_threads=decision.cpu_threads,
        memory_bytes=charge.memory.bytes_for(decision.batch),
        gpu_memory_bytes=charge.gpu_memory.bytes_for(decision.batch),
        gpu_slots=decision.gpu_slots,
        io_slots=decision.io_slots,
    )


def _shrunk(reservation: Reservation, batch: int) -> Grant:
    charge = reservation._charge  # noqa: SLF001 - the ledger is the one user of the charge
    return replace(
        reservation.grant,
        batch=batch,
        memory_bytes=charge.memory.bytes_for(batch),
        gpu_memory_bytes=charge.gpu_memory.bytes_for(batch),
    )


def _plus(sums: Resources, grant: Grant) -> Resources:
    return Resources(
        memory_bytes=sums.memory_bytes + grant.memory_bytes,
        gpu_memory_bytes=(sums.gpu_memory_bytes or 0) + grant.gpu_memory_bytes,
        cpu_threads=sums.cpu_threads + grant.cpu_threads,
        gpu_slots=sums.gpu_slots + grant.gpu_slots,
        io_slots=sums.io_slots + grant.io_slots,
    )


def _minus(sums: Resources, grant: Grant) -> Resources:
    return Resources(
        memory_bytes=sums.memory_bytes - grant.memory_bytes,
        gpu_memory_bytes=(sums.gpu_memory_bytes or 0) - grant.gpu_memory_bytes,
        cpu_threads=sums.cpu_threads - grant.cpu_threads,
        gpu_slots=sums.gpu_slots - grant.gpu_slots,
        io_slots=sums.io_slots - grant.io_slots,
    )
