"""Tests of the governor under many threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from governor.governor import Governor
from governor.model import Decision, Resources
from tests.unit.governor.builders import GIB, Machine, a_governor, an_estimate

PATIENCE_SECONDS = 60.0


def run_in_threads(threads: int, work: Callable[[], object]) -> list[object]:
    """Run the same work in all threads at once and return their results."""
    barrier = threading.Barrier(threads)

    def start_together() -> object:
        barrier.wait(PATIENCE_SECONDS)
        return work()

    with ThreadPoolExecutor(threads) as pool:
        return [future.result() for future in [pool.submit(start_together) for _ in range(threads)]]


def test_16_threads_reserve_and_release_exactly() -> None:
    """25 cycles each: the sums are exact in between and zero at the end."""
    machine = Machine()
    governor = a_governor(machine)
    snapshot = machine.look()
    estimate = an_estimate(memory_per_item_bytes=GIB // 2, min_batch=1, max_batch=1, cpu_threads=1)

    def cycle() -> int:
        admitted = 0
        while admitted < 25:
            _, reservation = governor.reserve(snapshot, estimate, "a")
            governor.check()
            if reservation is not None:
                admitted += 1
                assert governor.availability().reserved.memory_bytes >= GIB // 2
                assert governor.release(reservation)
        return admitted

    assert run_in_threads(16, cycle) == [25] * 16
    assert governor.availability().reserved == Resources()
    assert governor.generation() == 2 * 16 * 25


def test_8_threads_agree_on_10000_decisions() -> None:
    """The same question on the same snapshot has one answer."""
    machine = Machine()
    governor = a_governor(machine)
    snapshot, estimate = machine.look(), an_estimate()

    def decide() -> set[Decision]:
        return {governor.decide(snapshot, estimate, "a") for _ in range(10_000)}

    answers = run_in_threads(8, decide)

    assert answers == [{governor.decide(snapshot, estimate, "a")}] * 8
    assert governor.generation() == 0


def test_one_reservation_is_released_by_one_of_many() -> None:
    """Sixteen threads try; exactly one is told that it did."""
    machine = Machine()
    governor = a_governor(machine)
    _, reservation = governor.reserve(machine.look(), an_estimate(), "a")
    assert reservation is not None

    released = run_in_threads(16, lambda: governor.release(reservation))

    assert sorted(map(bool, released)) == [False] * 15 + [True]


def wait_in_thread(governor: Governor, seen: int) -> tuple[threading.Thread, list[int]]:
    """Start a thread that waits for a change; the list gets the generation it saw."""
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(governor.wait_for_change(seen, PATIENCE_SECONDS)))
    thread.start()
    return thread, result


def test_a_change_wakes_who_waits() -> None:
    """Whether it came before or after the wait began."""
    machine = Machine()
    governor = a_governor(machine)
    thread, result = wait_in_thread(governor, seen=0)

    governor.reserve(machine.look(), an_estimate(), "a")
    thread.join(PATIENCE_SECONDS)

    assert result == [1]


def test_closing_wakes_who_waits() -> None:
    """A shutdown does not hang on a waiting loop."""
    governor = a_governor()
    thread, result = wait_in_thread(governor, seen=0)

    governor.close()
    thread.join(PATIENCE_SECONDS)

    assert result == [0]


def test_a_wait_returns_at_once_when_it_has_changed_already() -> None:
    """And after its timeout when nothing changes."""
    governor = a_governor()

    assert governor.wait_for_change(seen=7, timeout_seconds=PATIENCE_SECONDS) == 0
    assert governor.wait_for_change(seen=0, timeout_seconds=0.0) == 0


def test_a_subscriber_may_use_the_governor_from_another_thread() -> None:
    """The lock is not held during the call: a second thread gets its answer."""
    machine = Machine()
    governor = a_governor(machine)
    answers: list[int] = []

    def ask_elsewhere() -> None:
        thread = threading.Thread(target=lambda: answers.append(governor.generation()), daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)

    governor.subscribe(ask_elsewhere)
    governor.reserve(machine.look(), an_estimate(), "a")

    assert answers == [1]
