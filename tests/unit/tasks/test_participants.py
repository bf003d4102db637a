"""Granted threads share a window's items, and no others run."""

import threading
from collections.abc import Callable

import cv2
import pytest
from threadpoolctl import threadpool_info

from tasks.participants import run_shared, single_threaded_libraries


def meeting_of(count: int) -> Callable[[int], str]:
    """Return a function that returns only once ``count`` threads are in it."""
    barrier = threading.Barrier(count, timeout=20)

    def meet(_item: int) -> str:
        barrier.wait()
        return threading.current_thread().name

    return meet


@pytest.mark.parametrize(("items", "granted", "participants"), [(4, 2, 2), (2, 8, 2), (3, 1, 1)])
def test_no_more_threads_run_than_granted_or_needed(items: int, granted: int, participants: int) -> None:
    """The callback's thread is one of them; the number is the smaller of grant and work."""
    names = run_shared(meeting_of(participants), range(items), granted)

    assert threading.current_thread().name in names
    assert threading.active_count() == 1


@pytest.mark.parametrize("granted", [1, 2, 4, 8])
def test_results_come_in_item_order(granted: int) -> None:
    """Which thread made a result does not show."""
    assert run_shared(lambda item: item * item, range(50), granted) == [item * item for item in range(50)]


def test_nothing_to_do_is_fine() -> None:
    """An empty window starts no thread."""
    assert run_shared(str, [], 8) == []


@pytest.mark.parametrize("granted", [1, 4])
def test_first_error_in_item_order_is_raised(granted: int) -> None:
    """Errors of helpers reach the callback's thread, always the same one, after all have ended."""

    def fail(item: int) -> int:
        if item in {2, 5}:
            raise ValueError(str(item))
        return item

    with pytest.raises(ValueError, match="2"):
        run_shared(fail, range(8), granted)

    assert threading.active_count() == 1


def test_libraries_have_one_thread_inside_and_their_own_after() -> None:
    """OpenCV's and the BLAS's settings are restored."""

    def settings() -> list[int]:
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return [cv2.getNumThreads(), *pools]

    before = settings()

    with single_threaded_libraries():
        inside = settings()

    assert set(inside) == {1}
    assert settings() == before
