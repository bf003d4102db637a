"""Who asks a second time does not want to wait."""

import pytest

from worker.shutdown import Patience

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(("pause_ns", "is_cold"), [(SECOND_NS, False), (SECOND_NS + 1, True)])
def test_two_wishes_more_than_a_second_apart_are_two(pause_ns: int, is_cold: bool) -> None:  # noqa: FBT001 - a table
    """Closer together they are one that came twice."""
    times, colds = iter([0, pause_ns]), []
    patience = Patience(lambda: next(times), lambda: colds.append(True))
    for _ in range(2):
        patience.on_shutting_down(how="Warm", sig="SIGTERM")

    assert bool(colds) is is_cold


def test_a_cold_shutdown_needs_no_second_wish() -> None:
    """Celery does that by itself."""
    colds: list[bool] = []
    patience = Patience(lambda: 0, lambda: colds.append(True))
    for _ in range(3):
        patience.on_shutting_down(how="Cold")

    assert colds == []
