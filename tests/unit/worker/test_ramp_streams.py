"""Tests of a ramp's streams: when photos come, and what counts as covered."""

import pytest

from worker.ramp_streams import (
    LONGEST_PERIODS,
    STREAMS,
    Delivery,
    Frame,
    due_in,
    frames,
    period_ms,
    uncovered_permille,
    work_ms,
)

DETECTOR, POSE, DEPTH = STREAMS
PERIOD_MS = 46


def delivery(captured_ms: float, completed_ms: float) -> Delivery:
    """Return a result of the detector."""
    frame = Frame(stream=DETECTOR, captured_ms=captured_ms, arrival_ms=captured_ms)
    return Delivery(frame=frame, completed_ms=completed_ms)


def test_full_load_is_what_comes_in_a_period() -> None:
    """The slow stream brings half a job in one."""
    work = {DETECTOR.kind: 40_000_000, POSE.kind: 20_000_000, DEPTH.kind: 30_000_000}

    assert work_ms(work) == pytest.approx(40 + 20 + 15)
    assert sum(len(due_in(number)) for number in range(LONGEST_PERIODS)) == 2 + 2 + 1


@pytest.mark.parametrize(("load", "period"), [(100, 75), (90, 83), (125, 60), (10_000, 1)])
def test_more_load_is_a_shorter_period(load: int, period: int) -> None:
    """In whole milliseconds, and never none."""
    assert period_ms(75.0, load) == period


def test_each_stream_brings_its_share_in_order_of_arrival() -> None:
    """Every frame arrives a twenty-third of the period after its capture, which is early or late by 1/46."""
    found = frames(PERIOD_MS, cycles=10, seed=1)
    detections = [frame for frame in found if frame.stream is DETECTOR]
    arrivals = [frame.arrival_ms for frame in found]

    assert [sum(frame.stream is stream for frame in found) for stream in STREAMS] == [10, 10, 5]
    assert arrivals == sorted(arrivals)
    assert all(abs(frame.captured_ms - n * PERIOD_MS) <= 1 for n, frame in enumerate(detections))
    assert {round(frame.arrival_ms - frame.captured_ms, 6) for frame in found} == {2.0}


def test_the_same_seed_is_the_same_flight() -> None:
    """Settings are compared on equal terms."""
    assert frames(PERIOD_MS, 10, seed=1) == frames(PERIOD_MS, 10, seed=1) != frames(PERIOD_MS, 10, seed=2)


@pytest.mark.parametrize(
    ("deliveries", "permille"),
    [
        ([], 1000),
        ([delivery(0, 40), delivery(46, 80)], 0),
        ([delivery(0, 46), delivery(46, 90)], 500),  # Both in the second window.
        ([delivery(0, 40), delivery(0, 92)], 500),  # Just fresh, but behind the last window.
        ([delivery(0, 40), delivery(-2, 91)], 500),  # In the second window, one millisecond too old.
        ([delivery(0, 40), delivery(-1, 91)], 0),
    ],
)
def test_a_window_is_covered_by_a_fresh_result(deliveries: list[Delivery], permille: int) -> None:
    """Two windows; a result is fresh up to two periods after its capture."""
    assert uncovered_permille(DETECTOR, deliveries, PERIOD_MS, cycles=2) == permille


def test_results_of_other_streams_cover_nothing() -> None:
    """Each stream has windows of its own."""
    assert uncovered_permille(POSE, [delivery(0, 40)], PERIOD_MS, cycles=2) == 1000
