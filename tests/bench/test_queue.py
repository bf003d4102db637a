"""The queue bench runs both workers, and works its figures out right."""

import pytest

from tests.bench.queue import Effort, Pair, latency_report, measure, median_ratios
from tests.bench.queue_side import Drained


def drained(seconds: float) -> Drained:
    """Return a queue of 100 jobs that took so long."""
    return Drained(jobs=100, seconds=seconds, main_cpu_seconds=0.0, pool_cpu_seconds=0.0)


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    """Two outliers on one side move nothing."""
    pairs = [Pair(stock=drained(stock), governed=drained(1.0)) for stock in (0.1, 2.0, 3.0, 4.0, 500.0)]

    assert median_ratios({8: pairs}) == {"8": 3.0}


def test_of_a_hundred_samples_the_slowest_but_one_is_the_99th_percentile() -> None:
    """Interpolated between the last two."""
    samples = [float(number) for number in range(101)]
    report = latency_report({"governed": samples, "stock": samples[::-1]})

    assert report["idle_submit_to_start_p99_ms"] == pytest.approx(99.0)
    assert report["stock_idle_submit_to_start_p50_ms"] == pytest.approx(50.0)


def test_a_short_run_measures_everything() -> None:
    """Whatever the figures are: how fast it is depends on the machine."""
    report = measure(Effort(pairs=1, jobs=20, samples=2, idle_seconds=0.2, with_events=True, sizes=(8,)))

    assert report["ratio_to_stock"]["8"] > 0
    assert report["ratio_to_stock_with_events"]["8"] > 0
    assert report["idle_submit_to_start_p99_ms"] > 0
    assert report["idle_cpu_percent"] >= 0
    assert report["events_off"]["8"]["governed"]["jobs_per_second"] > 0
