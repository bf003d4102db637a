"""Which limit holds for an item, when it is met, and how that is told."""

from typing import Any

import pytest

from tasks.errors import Reason
from tasks.kind import TimeLimit
from tests.unit.worker.builders import KIND, FakeRequest, a_kind
from worker import time_limits
from worker.time_limits import ItemClock, Overrun, Ticks

SECOND_NS = 1_000_000_000
LIMIT = TimeLimit(soft_seconds=10, hard_seconds=20)
FOR_EVER = TimeLimit(soft_seconds=None, hard_seconds=None)


def a_clock(limit: TimeLimit = LIMIT, since_seconds: float = 100) -> ItemClock:
    """Build the clock of an item that is at work since then."""
    return ItemClock(limit=limit, since_ns=round(since_seconds * SECOND_NS))


@pytest.mark.parametrize(
    ("after_ns", "overrun"),
    [
        (10 * SECOND_NS - 1, None),
        (10 * SECOND_NS, Overrun.SOFT),
        (20 * SECOND_NS - 1, Overrun.SOFT),
        (20 * SECOND_NS, Overrun.HARD),
    ],
)
def test_a_limit_is_met_to_the_nanosecond(after_ns: int, overrun: Overrun | None) -> None:
    """Just below it is not."""
    assert a_clock().overrun(100 * SECOND_NS + after_ns) == overrun


def test_the_soft_limit_is_told_once_for_each_item() -> None:
    """The next item has its own."""
    clock = a_clock()
    told = [clock.overrun(seconds * SECOND_NS) for seconds in (111, 112)]
    clock.restart(LIMIT, 113 * SECOND_NS)
    told += [clock.overrun(seconds * SECOND_NS) for seconds in (122, 123)]

    assert told == [Overrun.SOFT, None, None, Overrun.SOFT]


def test_an_item_without_limits_may_take_for_ever() -> None:
    """Whoever says so gets it."""
    assert a_clock(FOR_EVER).overrun(10**9 * SECOND_NS) is None


def test_a_pause_is_not_counted_and_brings_no_item_into_the_future() -> None:
    """One that began after the pause does not gain by it."""
    old, young = a_clock(since_seconds=100), a_clock(since_seconds=199)
    for clock in (old, young):
        clock.excuse(pause_ns=95 * SECOND_NS, now_ns=200 * SECOND_NS)

    assert (old.since_ns, young.since_ns) == (195 * SECOND_NS, 200 * SECOND_NS)


def test_a_pause_does_not_shorten_the_time_to_load() -> None:
    """The clock of a kind's first item begins later."""
    clock = a_clock(since_seconds=300)
    clock.excuse(pause_ns=50 * SECOND_NS, now_ns=200 * SECOND_NS)

    assert clock.since_ns == 300 * SECOND_NS


@pytest.mark.parametrize(("gap_ns", "pause_ns"), [(2 * SECOND_NS, 0), (2 * SECOND_NS + 1, SECOND_NS + 1)])
def test_a_tick_that_is_late_by_more_than_a_second_tells_of_a_pause(gap_ns: int, pause_ns: int) -> None:
    """A busy loop is no pause; ticks that come early are none either."""
    ticks = Ticks(100 * SECOND_NS)

    assert ticks.pause_ns(100 * SECOND_NS + 1) == 0
    assert ticks.pause_ns(100 * SECOND_NS + 1 + gap_ns) == pause_ns


def a_request(hard: Any = None, soft: Any = None) -> FakeRequest:
    """Build a request whose sender said this; its kind has 60 s and 90 s."""
    request = FakeRequest("id", {})
    request.time_limits = (hard, soft)
    return request


@pytest.mark.parametrize(
    ("sent", "limit"),
    [((None, None), (60, 90)), ((5, None), (60, 5)), ((None, 7), (7, 90)), ((0, 0), (60, 90))],
)
def test_a_senders_limit_goes_before_that_of_its_kind(
    sent: tuple[Any, Any], limit: tuple[float, float]
) -> None:
    """Each of the two by itself; 0 is none of its own, as with a stock worker."""
    found = time_limits.limit_of(a_request(*sent))

    assert (found.soft_seconds, found.hard_seconds) == limit


def test_items_worked_on_together_have_the_longest_limit_of_them() -> None:
    """Any may be the one that takes so long; none is for ever where one has none."""
    assert time_limits.widest([LIMIT, TimeLimit(soft_seconds=5, hard_seconds=30)]) == TimeLimit(
        soft_seconds=10, hard_seconds=30
    )
    assert time_limits.widest([LIMIT, FOR_EVER]) == FOR_EVER


def test_the_least_soft_limit_is_the_first_that_can_be_met() -> None:
    """None where no item has one."""
    assert time_limits.least_soft_seconds([LIMIT, TimeLimit(soft_seconds=7), FOR_EVER]) == 7
    assert time_limits.least_soft_seconds([FOR_EVER]) is None


@pytest.mark.parametrize(
    ("header", "is_valid"),
    [
        (None, True),
        ([None, None], True),
        ([0, 1.5], True),
        ([1], False),
        ([1, 2, 3], False),
        ("60", False),
        ([-1, None], False),
        ([True, None], False),
        (["1", None], False),
        ([float("nan"), None], False),
        ([float("inf"), None], False),
    ],
)
def test_a_header_is_what_celery_writes(header: object, is_valid: bool) -> None:  # noqa: FBT001 - a table
    """Messages come from anybody."""
    assert time_limits.is_header(header) is is_valid


def test_a_nodes_setting_goes_before_what_the_kind_says() -> None:
    """Soft first, then hard."""
    kind = a_kind(time_limit=LIMIT)

    assert time_limits.of_kind(kind, {KIND: (1.0, 2.0)}) == TimeLimit(soft_seconds=1, hard_seconds=2)
    assert time_limits.of_kind(kind, {"other": (1.0, 2.0)}) == LIMIT


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (1, "1 s"),
        (119, "119 s"),
        (120, "2 min"),
        (4500, "75 min"),
        (7200, "2 h"),
        (1_209_600, "14 days"),
    ],
)
def test_a_limit_is_told_in_whole_units(seconds: float, words: str) -> None:
    """As people say it."""
    assert time_limits.in_words(seconds) == words


def test_the_failure_says_which_limit_and_what_to_do() -> None:
    """With the name of the item."""
    failure = time_limits.failure("a.jpg", time_limits.cause(Overrun.HARD, 900))

    assert (failure.name, failure.reason) == ("a.jpg", Reason.TIME_LIMIT)
    assert failure.cause == "the job exceeded its hard time limit of 15 min"
    assert "TIEPOINT_TIME_LIMITS" in failure.cure
