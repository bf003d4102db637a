"""Tells the other workers of this machine what free memory is promised here, and hears it from them.

They all see the same free memory, and a job takes its part little by little.
What a worker has reserved and its jobs do not hold yet stands in its file of
the lock folder; the others take it off what they see. The folder is locked
while one of them looks, decides and writes. The kernel drops a file's lock with
its process, so the dead promise nothing. A worker that is alone writes nothing:
its file then says "unknown", which counts as its whole partition until it has
seen the newcomer (one heartbeat). Does not cover who may start
(:mod:`worker.machine`).
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from governor.errors import SnapshotError
from governor.governor import Governor
from governor.ledger import Reservation
from governor.model import UINT64_MAX, Decision, Estimate, Resources, Snapshot
from worker.machine import (
    NO_PROMISE,
    PROMISE_BYTES,
    PROMISE_OFFSET,
    Place,
    held_folder,
    read_partition,
)
from worker.neighbours import Neighbours
from worker.partitions import Partition

_TRIES = 100
"""One per millisecond. A turn takes less than one, unless somebody is frozen within it."""


class Promises:
    """What this worker and its neighbours have promised; any thread may call."""

    def __init__(self, place: Place, unused_bytes: Callable[[], int]) -> None:
        """``unused_bytes`` tells how much is reserved here that no job holds yet."""
        self._place = place
        self._folder = place.path.parent
        self._neighbours = Neighbours(place.path)
        self._unused_bytes = unused_bytes
        self._written = NO_PROMISE
        self._writing = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[int | None]:
        """Give what the neighbours have promised and their jobs do not hold yet; None: there are none.

        None of them looks, and none starts, before the block has ended.

        Raises:
            SnapshotError: the lock folder cannot be read: what is free is unknown.
        """
        with _readable():
            is_alone = not self._neighbours.names()
        if is_alone:
            yield None
            return
        with _readable(), held_folder(self._folder, tries=_TRIES):
            # Within the lock no file is there that its worker has not locked yet: what is not, is dead.
            yield sum(self._promised_bytes(name) for name in self._neighbours.names())

    def publish(self) -> None:
        """Write what is promised here, if anybody is there to read it.

        Where that fails the last number stays, and with the folder away nobody starts anything more.
        """
        with suppress(OSError), self._writing:
            text = (
                b"%020d" % min(self._unused_bytes(), UINT64_MAX) if self._neighbours.names() else NO_PROMISE
            )
            if text != self._written:
                os.pwrite(self._place.descriptor, text, PROMISE_OFFSET)
                self._written = text

    def _promised_bytes(self, name: str) -> int:
        found = read_partition(self._folder / name, promise_bytes=PROMISE_BYTES)
        if found is None:
            return 0
        partition, promise = found
        if not self._sees_the_same_memory(partition):
            return 0
        if promise.isdigit():
            return int(promise)
        return partition.memory_bytes or UINT64_MAX

    def _sees_the_same_memory(self, neighbour: Partition) -> bool:
        """Tell whether all that bounds our memory bounds the neighbour's too: then it takes from what we see.

        Without limits of our own that is everybody. One beyond our limits is kept apart by them.
        """
        return neighbour.cgroups is None or self._place.memory_cgroups.issubset(neighbour.cgroups)


class SharingGovernor(Governor):
    """A governor that leaves alone what the machine's other workers have promised."""

    def __init__(
        self, *arguments: Any, promises: Promises, read_available_bytes: Callable[[], int], **options: Any
    ) -> None:
        """``read_available_bytes`` reads what is free now, as a snapshot does."""
        super().__init__(*arguments, **options)
        self._promises = promises
        self._read_available_bytes = read_available_bytes
        self.subscribe(promises.publish)  # Within the turn of a reservation, and after each release.

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of a reading, less what the others have promised of it.

        Raises:
            SnapshotError: what they have promised cannot be read.
        """
        with self._less(snapshot) as left:
            super().observe(left)

    def budget_on(self, snapshot: Snapshot) -> Resources:
        """Return what a reading leaves to hand out, less what the others have promised of it.

        Raises:
            SnapshotError: what they have promised cannot be read.
        """
        with self._less(snapshot) as left:
            return super().budget_on(left)

    def decide(
        self,
        snapshot: Snapshot,
        estimate: Estimate,
        kind: str,
        waiting_items: int | None = None,
        nodes: int = 1,
    ) -> Decision:
        """Answer like :meth:`reserve`, but reserve nothing.

        Raises:
            SnapshotError: what the others have promised cannot be read.
        """
        with self._less(snapshot) as left:
            return super().decide(left, estimate, kind, waiting_items, nodes)

    def reserve(
        self,
        snapshot: Snapshot,
        estimate: Estimate,
        kind: str,
        waiting_items: int | None = None,
        nodes: int = 1,
    ) -> tuple[Decision, Reservation | None]:
        """Decide, charge, and let the other workers see it before they decide.

        Raises:
            SnapshotError: what the others have promised cannot be read.
        """
        with self._less(snapshot) as left:
            return super().reserve(left, estimate, kind, waiting_items, nodes)

    @contextmanager
    def _less(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Give a reading less what the others have promised, in one turn with the block."""
        with self._promises.turn() as promised_bytes:
            if promised_bytes is None:
                yield snapshot
                return
            # Read after the promises: what their jobs have taken is no longer among those, and an older
            # reading does not miss it yet.
            available_bytes = min(snapshot.memory_available_bytes, self._read_available_bytes())
            yield replace(
                snapshot, memory_available_bytes=available_bytes, memory_promised_bytes=promised_bytes
            )


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"cannot tell what other workers of this machine have promised: {error}"
        raise SnapshotError(msg) from error
