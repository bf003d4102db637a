"""The exception of a soft limit is raised in the callback of the item that was meant, and nowhere else."""

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from tasks.kind import Done, Outcome
from worker import soft_limit
from worker.soft_limit import SoftLimit


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[SoftLimit]:
    """Return one that listens, with a clock that a test sets (`limit.clock.now`)."""
    before = signal.getsignal(soft_limit.SIGNAL)
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(soft_limit, "time", SimpleNamespace(monotonic_ns=lambda: clock.now))
    limit = SoftLimit()
    limit.listen()
    monkeypatch.setattr(SoftLimit, "clock", clock, raising=False)
    yield limit
    signal.signal(soft_limit.SIGNAL, before)


def run(limit: SoftLimit, seconds: float, soft_seconds: float | None = 10) -> list[Outcome]:
    """Run a callback that is sent the signal after so long."""

    def callback() -> Iterator[Outcome]:
        limit.clock.now += round(seconds * 1e9)  # type: ignore[attr-defined]
        signal.raise_signal(soft_limit.SIGNAL)
        yield Done()

    return list(limit.watched(callback, soft_seconds))


@pytest.mark.parametrize("seconds", [5, 10, 1000])
def test_the_callback_gets_an_exception(limit: SoftLimit, seconds: float) -> None:
    """Where at least half of its time has passed: this process's clock began a little later."""
    with pytest.raises(SoftTimeLimitExceeded):
        run(limit, seconds)


def test_a_signal_that_was_meant_for_the_item_before_is_ignored(limit: SoftLimit) -> None:
    """It was under way when that one ended."""
    assert run(limit, 4.9) == [Done()]


def test_without_a_limit_the_signal_means_nothing(limit: SoftLimit) -> None:
    """Whoever sends it."""
    assert run(limit, 1000, soft_seconds=None) == [Done()]


def test_nothing_is_raised_while_an_outcome_is_published(limit: SoftLimit) -> None:
    """A frame that is torn in the middle would cost the whole batch."""
    outcomes = limit.watched(lambda: iter([Done(), Done()]), 10)
    next(outcomes)
    limit.clock.now += 100 * 10**9  # type: ignore[attr-defined]
    signal.raise_signal(soft_limit.SIGNAL)

    assert list(outcomes) == [Done()]


def test_nothing_is_raised_between_batches(limit: SoftLimit) -> None:
    """Nobody would catch it."""
    first = run(limit, 0)
    limit.clock.now += 100 * 10**9  # type: ignore[attr-defined]
    signal.raise_signal(soft_limit.SIGNAL)

    assert [*first, *run(limit, 0)] == [Done(), Done()]
