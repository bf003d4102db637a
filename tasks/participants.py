"""Decides how the granted threads share the items of a window, and that libraries add none.

Threads here only compute; publishing stays with the callback's own thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar

from threadpoolctl import threadpool_limits

from tasks.opencv_threads import opencv_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_shared(
    function: Callable[[Item], Result], items: Sequence[Item], granted_threads: int
) -> list[Result]:
    """Apply a function to every item on at most ``granted_threads`` threads; results in item order.

    The calling thread takes part and starts at most ``granted_threads - 1``
    others, never more than there are items for. All are joined on return.

    Raises:
        Exception: the one that the first failing item (in item order) raised;
            the other items are still worked on.
    """
    waiting = deque(enumerate(items))
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}

    def participate() -> None:
        while waiting:
            try:
                position, item = waiting.popleft()
            except IndexError:  # another participant took the last one
                return
            try:
                results[position] = function(item)
            except Exception as error:  # noqa: BLE001 - crosses threads; the caller raises it below
                errors[position] = error

    helpers = [
        Thread(target=participate, name="participant") for _ in range(_helper_count(items, granted_threads))
    ]
    for helper in helpers:
        helper.start()
    participate()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[min(errors)]
    return [results[position] for position in range(len(items))]


@contextmanager
def single_threaded_libraries() -> Iterator[None]:
    """Keep OpenCV and the BLAS at one thread inside; their pools would come on top of the grant."""
    with opencv_threads(1), threadpool_limits(limits=1, user_api="blas"):
        yield


def _helper_count(items: Sequence[Item], granted_threads: int) -> int:
    return max(0, min(granted_threads, len(items)) - 1)
