"""Workers of one machine do not promise the same free memory twice."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governor.errors import SnapshotError
from governor.model import UINT64_MAX, Estimate
from tests.unit.governor.builders import GIB, Machine, a_policy, a_profile
from worker.machine import Place, take_place
from worker.promises import Promises, SharingGovernor
from worker.settings import Settings

MIB = 2**20
WHAT_IS_LEFT = 6 * GIB


class Worker:
    """A worker of 4 GiB on a machine on which 6 GiB are free; `held_bytes` is what its jobs hold."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.held_bytes = 0
        self.free_now_bytes = UINT64_MAX
        """What is free when it is read anew; more than a snapshot has is of no use."""
        self.promises = Promises(place, self.unused_bytes)
        machine = Machine()
        self.governor = SharingGovernor(
            a_profile(memory_total_bytes=4 * GIB),
            a_policy(memory_reserve_bytes=GIB),
            now_ns=machine.clock,
            capture=machine.look,
            promises=self.promises,
            read_available_bytes=lambda: self.free_now_bytes,
        )
        self._machine = machine

    def unused_bytes(self) -> int:
        """Return what is reserved and not held."""
        return max(0, self.governor.availability().reserved.memory_bytes - self.held_bytes)

    def reserve(self, amount_bytes: int, free_bytes: int = WHAT_IS_LEFT) -> Any:
        """Ask for that much; return the reservation or None."""
        snapshot = self._machine.look(available_bytes=free_bytes)
        return self.governor.reserve(snapshot, Estimate(memory_fixed_bytes=amount_bytes), "kind")[1]

    def end(self) -> None:
        """End as a killed process does: the kernel closes its file."""
        os.close(self.place.descriptor)


def promised_to(worker: Promises) -> int | None:
    """Return what a worker hears that the others have promised; None where it is alone."""
    with worker.turn() as promised_bytes:
        return promised_bytes


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Worker]]:
    """Return a function that starts a worker of 4 GiB; all end with the test."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    workers: list[Worker] = []

    def started() -> Worker:
        settings = Settings(lock_folder=tmp_path, broker_url="redis://lab", memory_bytes=4 * GIB, cpus=1)
        workers.append(Worker(take_place(settings)))
        return workers[-1]

    yield started
    for worker in workers:
        try:
            worker.end()
        except OSError:
            continue  # Ended by the test.


@pytest.fixture
def pair(start: Callable[[], Worker]) -> tuple[Worker, Worker]:
    """Return two workers that have seen each other."""
    first, second = start(), start()
    first.promises.publish()
    second.promises.publish()
    return first, second


def test_alone_a_worker_writes_nothing(start: Callable[[], Worker]) -> None:
    """Nobody would read it; nor is anything read again that a snapshot has."""
    worker = start()
    worker.free_now_bytes = 0
    before = worker.place.path.read_bytes()

    assert worker.reserve(GIB) is not None
    assert promised_to(worker.promises) is None
    assert worker.place.path.read_bytes() == before


@pytest.mark.parametrize(("amount_bytes", "fits"), [(2 * GIB, True), (2 * GIB + 1, False)])
def test_what_one_has_promised_is_not_free_for_the_other(
    pair: tuple[Worker, Worker], amount_bytes: int, *, fits: bool
) -> None:
    """Of 6 GiB that are free one has promised 3, and 1 is kept: 2 are left."""
    first, second = pair
    first.reserve(3 * GIB)

    assert (second.reserve(amount_bytes) is not None) is fits


def test_what_jobs_hold_already_is_not_taken_off_twice(pair: tuple[Worker, Worker]) -> None:
    """It is missing from the free memory; of 3 GiB promised 2 are held, so 1 is still to come."""
    first, second = pair
    first.reserve(3 * GIB)
    first.held_bytes = 2 * GIB
    first.promises.publish()

    assert promised_to(second.promises) == GIB
    assert second.reserve(2 * GIB, free_bytes=WHAT_IS_LEFT - 2 * GIB) is not None


@pytest.mark.parametrize(("amount_bytes", "fits"), [(2 * GIB, True), (2 * GIB + 1, False)])
def test_what_jobs_have_taken_since_the_last_look_is_not_free(
    pair: tuple[Worker, Worker], amount_bytes: int, *, fits: bool
) -> None:
    """It is promised no more, and a reading of 250 ms ago does not miss it yet."""
    first, second = pair
    first.reserve(3 * GIB)
    first.held_bytes = 3 * GIB
    first.promises.publish()
    second.free_now_bytes = WHAT_IS_LEFT - 3 * GIB

    assert (second.reserve(amount_bytes) is not None) is fits


def test_what_a_node_tells_of_its_budget_is_less_by_promises(pair: tuple[Worker, Worker]) -> None:
    """Of 6 GiB one has promised 3 and 1 is kept; nothing is taken note of."""
    first, second = pair
    first.reserve(3 * GIB)
    snapshot = second._machine.look(available_bytes=WHAT_IS_LEFT)

    assert second.governor.budget_on(snapshot).memory_bytes == 2 * GIB
    assert second.governor.availability().budget.memory_bytes == 3 * GIB


def test_a_reading_that_is_noted_is_less_by_promises(pair: tuple[Worker, Worker]) -> None:
    """What of the large entries fits is asked by it."""
    first, second = pair
    first.reserve(3 * GIB)
    second.governor.observe(second._machine.look(available_bytes=WHAT_IS_LEFT))

    assert second.governor.availability().budget.memory_bytes == 2 * GIB


def test_an_idle_neighbour_takes_nothing(pair: tuple[Worker, Worker]) -> None:
    """All that the partition allows may be had, though both together could not have it."""
    first, second = pair
    reservation = first.reserve(3 * GIB)
    first.governor.release(reservation)

    assert second.reserve(3 * GIB, free_bytes=4 * GIB) is not None


def test_a_killed_workers_promise_goes_with_it(pair: tuple[Worker, Worker]) -> None:
    """The kernel drops its lock; nobody has to clean up."""
    first, second = pair
    first.reserve(3 * GIB)
    first.end()

    assert promised_to(second.promises) == 0
    assert not first.place.path.exists()


def test_until_a_neighbour_has_told_it_may_promise_all_it_has(start: Callable[[], Worker]) -> None:
    """It was alone when it reserved, and wrote nothing; with its next reading it sees the newcomer."""
    first = start()
    first.reserve(GIB)
    second = start()
    before_bytes = promised_to(second.promises)
    first.promises.publish()

    assert (before_bytes, promised_to(second.promises)) == (4 * GIB, GIB)


def test_alone_again_a_worker_takes_its_number_back(
    pair: tuple[Worker, Worker], start: Callable[[], Worker]
) -> None:
    """It would be an old one for the next newcomer."""
    first, second = pair
    second.end()
    promised_to(first.promises)
    first.promises.publish()

    assert promised_to(start().promises) == 4 * GIB


def test_pressure_is_not_judged_by_promises(pair: tuple[Worker, Worker]) -> None:
    """Memory that is promised is not short: the colour goes by what is free."""
    first, second = pair
    first.reserve(3 * GIB)
    second.reserve(GIB, free_bytes=3 * GIB)

    assert second.governor.pressure() == "GREEN"


def test_deciding_sees_the_promises_too(pair: tuple[Worker, Worker]) -> None:
    """It must answer as a reservation would."""
    first, second = pair
    first.reserve(3 * GIB)
    snapshot = second._machine.look(available_bytes=WHAT_IS_LEFT)
    estimate = Estimate(memory_fixed_bytes=2 * GIB + 1)

    assert not second.governor.decide(snapshot, estimate, "kind").is_admitted


@pytest.mark.parametrize(
    ("ours", "theirs", "promised_bytes"),
    [
        ((), (), 3 * GIB),
        ((), ("box",), 3 * GIB),
        (("box",), ("box",), 3 * GIB),
        (("box",), ("inner", "box", "quota"), 3 * GIB),
        (("box",), (), 0),
        (("box",), ("other",), 0),
        (("inner", "box"), ("box",), 0),
    ],
)
def test_a_neighbour_counts_where_it_takes_from_what_we_see(
    pair: tuple[Worker, Worker], ours: tuple[str, ...], theirs: tuple[str, ...], promised_bytes: int
) -> None:
    """One in another container does not: its limit and ours keep the two apart."""
    first, second = pair
    first.reserve(3 * GIB)
    text = json.dumps({"name": "first", "queue": "", "memory_bytes": 4 * GIB, "cgroups": theirs})
    os.pwrite(first.place.descriptor, text.encode().ljust(400), 0)

    assert (
        promised_to(Promises(replace(second.place, memory_cgroups=frozenset(ours)), lambda: 0))
        == promised_bytes
    )


@pytest.mark.parametrize("cgroups", [frozenset(), frozenset({"box"})])
def test_a_neighbour_whose_file_is_damaged_counts_with_all_it_might_have(
    pair: tuple[Worker, Worker], cgroups: frozenset[str]
) -> None:
    """Nobody knows then what bounds it, nor how much it may promise: memory fails closed."""
    first, second = pair
    os.ftruncate(first.place.descriptor, 0)
    os.pwrite(first.place.descriptor, b"{", 0)
    ours = Promises(replace(second.place, memory_cgroups=cgroups), lambda: 0)

    assert promised_to(ours) == UINT64_MAX


def test_while_one_decides_no_other_does(
    pair: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both would see the same free memory; one that is frozen within its turn stops nobody for long."""
    first, second = pair
    monkeypatch.setattr("worker.promises._TRIES", 2)
    with first.promises.turn(), pytest.raises(SnapshotError, match="other workers of this machine"):
        second.reserve(MIB)

    assert second.reserve(MIB) is not None


def test_without_the_folder_nothing_starts(pair: tuple[Worker, Worker]) -> None:
    """What the others have promised is unknown then: memory fails closed."""
    first, second = pair
    first.place.path.unlink()
    second.place.path.unlink()
    second.place.path.parent.rmdir()

    with pytest.raises(SnapshotError, match="other workers of this machine"):
        second.reserve(MIB)


def test_a_release_ends_well_without_the_folder(pair: tuple[Worker, Worker]) -> None:
    """A batch that is over must be settled whatever has become of the folder."""
    first, second = pair
    reservation = first.reserve(MIB)
    for worker in pair:
        worker.place.path.unlink()
    second.place.path.parent.rmdir()

    assert first.governor.release(reservation)


def test_the_turn_ends_with_the_reservation(pair: tuple[Worker, Worker]) -> None:
    """The folder is free for whoever comes next."""
    first, _ = pair
    first.reserve(MIB)
    descriptor = os.open(first.place.path.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
