"""Look-ahead: when the next job of a stream is reckoned to come, and what would be in its way."""

from dataclasses import replace

import pytest

from governor.planning.contract import NEVER_NS, Contract, ServiceClass
from governor.planning.look_ahead import Candidate, Forecast, Stream, forecast, vetoing

PERIOD, DEADLINE, TRANSPORT, JITTER, PLAN = 1000, 1500, 100, 20, 400
CONTRACT = Contract(
    service_class=ServiceClass.PROTECTED, period_ns=PERIOD, deadline_ns=DEADLINE, max_age_ns=2000
)


def stream(contract: Contract = CONTRACT) -> Stream:
    """Return a stream whose last job was captured at 9,900 and arrived at 10,000."""
    made = Stream(contract=contract, jitter_ns=JITTER)
    made.note_arrival(10_000, 10_000 - TRANSPORT)
    return made


def expected(now_ns: int, contract: Contract = CONTRACT) -> Forecast:
    """Return a forecast that must be there."""
    found = forecast(stream(contract), PLAN, now_ns)
    assert found is not None
    return found


def vetoed(
    projected_end_ns: int, *, now_ns: int = 10_900, service_class: ServiceClass = ServiceClass.HIGH
) -> bool:
    """Tell whether a batch on the only slot, until then, would be vetoed."""
    candidate = Candidate(service_class=service_class, projected_end_ns=projected_end_ns)

    def start_ns(arrival: Forecast, beside: Candidate | None) -> int:
        return max(arrival.earliest_start_ns, 0 if beside is None else beside.projected_end_ns)

    return vetoing(candidate, [expected(now_ns)], start_ns) is not None


def test_the_next_arrival_is_a_period_after_the_last() -> None:
    """Due when its capture is: the way to us counts against the deadline."""
    found = expected(10_500)

    assert (found.arrival_ns, found.earliest_start_ns) == (11_000, 11_000)
    assert found.deadline_ns == 11_000 + DEADLINE - TRANSPORT


@pytest.mark.parametrize(("late", "moved"), [(1, 1), (100, 100), (101, 100)])
def test_an_overdue_arrival_moves_with_the_clock_within_its_window(late: int, moved: int) -> None:
    """The window is the way to us (here 100), or twice the jitter where that is more."""
    found = expected(11_000 + late)

    assert found.arrival_ns == 11_000 + moved
    assert found.earliest_start_ns == 11_000 + late


@pytest.mark.parametrize(("late", "moved"), [(40, 40), (41, 40)])
def test_a_stream_without_a_way_to_us_has_a_window_of_twice_the_jitter(late: int, moved: int) -> None:
    """Early by one envelope at one time, late by one at the next."""
    near = Stream(contract=CONTRACT, jitter_ns=JITTER)
    near.note_arrival(10_000, 10_000)
    found = forecast(near, PLAN, 11_000 + late)

    assert found is not None
    assert found.arrival_ns == 11_000 + moved


def test_a_deadline_leaves_at_least_the_plan() -> None:
    """What comes so late that it cannot be in time is still wanted as soon as it can be."""
    found = expected(10_500, replace(CONTRACT, deadline_ns=TRANSPORT + 1))

    assert found.deadline_ns == 11_000 + PLAN


@pytest.mark.parametrize(
    "contract", [replace(CONTRACT, service_class=ServiceClass.BEST_EFFORT), replace(CONTRACT, period_ns=None)]
)
def test_what_does_not_come_periodically_is_not_foreseen(contract: Contract) -> None:
    """Nor what nobody protects."""
    assert forecast(stream(contract), PLAN, 10_500) is None
    assert forecast(Stream(contract=CONTRACT, jitter_ns=JITTER), PLAN, 10_500) is None


@pytest.mark.parametrize(("projected_end", "is_in_the_way"), [(12_000, False), (12_001, True)])
def test_a_batch_that_ends_too_late_for_the_deadline_is_vetoed(
    projected_end: int,
    is_in_the_way: bool,  # noqa: FBT001
) -> None:
    """The arrival must start by 12,000 to end by 12,400."""
    assert vetoed(projected_end) is is_in_the_way


def test_what_comes_when_the_batch_has_ended_is_no_reason() -> None:
    """Not even where it is reckoned to come in that moment."""
    assert not vetoed(11_000)


@pytest.mark.parametrize("service_class", [ServiceClass.PROTECTED, ServiceClass.HIGH])
def test_only_a_strictly_higher_class_vetoes(service_class: ServiceClass) -> None:
    """Streams of one class do not hold each other up."""
    assert vetoed(13_000, service_class=service_class) is (service_class is ServiceClass.HIGH)


def test_what_cannot_be_in_time_anyway_holds_up_nobody() -> None:
    """An arrival so overdue that it misses its deadline on an idle slot, too."""
    assert not vetoed(13_500, now_ns=12_101)
    assert vetoed(13_500, now_ns=12_100)


def test_candidates_come_by_class_then_deadline_then_age() -> None:
    """What has no deadline comes last of its class."""
    high = replace(CONTRACT, service_class=ServiceClass.HIGH)
    none = replace(high, deadline_ns=None)
    ordered = [
        CONTRACT.urgency(9_000, 9_000),
        high.urgency(1_000, 8_000),
        high.urgency(2_000, 7_000),
        none.urgency(0, 1),
        none.urgency(0, 2),
    ]

    assert sorted(ordered) == ordered
    assert none.absolute_deadline_ns(5) == NEVER_NS


@pytest.mark.parametrize(("end", "is_stale"), [(3_000, False), (3_001, True)])
def test_a_result_is_stale_when_it_would_be_too_old(end: int, is_stale: bool) -> None:  # noqa: FBT001
    """A missed deadline (1,500 here) alone is no reason to drop."""
    assert CONTRACT.is_stale(1_000, end) is is_stale
    assert not replace(CONTRACT, max_age_ns=None).is_stale(0, NEVER_NS)
