"""Durations become profiles: quantiles where there are enough of them, a line for every kind."""

import json
from pathlib import Path

import pytest

from governor.planning.profile import CellKey, Durations, LinearCost
from worker.calibrate import with_comment
from worker.calibration import profiles_of
from worker.duration_log import BatchDuration, DurationLog, read_durations


def batch(duration_ns: int, *, items: int = 1, others: int = 0, kind: str = "match") -> BatchDuration:
    """Return a batch that took so long."""
    return BatchDuration(kind=kind, variant="cpu", items=items, others=others, duration_ns=duration_ns)


def test_a_cell_of_a_hundred_has_its_quantiles() -> None:
    """None is interpolated: of 1..100 the ones of index 50, 95 and 99."""
    measured = profiles_of([batch(number) for number in range(1, 101)], {}, {})
    key = CellKey(kind="match")

    assert measured.profiles.cells == {key: Durations(p50_ns=51, p95_ns=96, p99_ns=100)}
    assert (measured.samples, measured.missing) == ({key: 100}, {})


def test_a_cell_of_ninety_nine_has_none_and_is_missing() -> None:
    """What is too little is said, not padded."""
    measured = profiles_of([batch(5)] * 99, {}, {})

    assert measured.profiles.cells == {}
    assert measured.missing == {CellKey(kind="match"): 99}


def test_durations_are_per_item_and_classes_are_powers_of_two() -> None:
    """A batch of five is one of eight that was not full."""
    measured = profiles_of([batch(50, items=5, others=9)] * 100, {}, {})

    assert measured.profiles.cells == {
        CellKey(kind="match", batch_class=8, occupancy=7): Durations(p50_ns=10, p95_ns=10, p99_ns=10)
    }


def test_a_kind_has_its_line() -> None:
    """Of two sizes: setup 100 and 10 per item."""
    measured = profiles_of([batch(110), batch(180, items=8)], {}, {})

    assert measured.profiles.linear["match"].per_item_ns == pytest.approx(10, abs=1)
    assert measured.profiles.linear["match"].setup_ns == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    "batches", [[batch(40, items=4)], [batch(100), batch(20, items=11)], [batch(1), batch(119, items=11)]]
)
def test_where_no_line_fits_all_is_per_item(batches: list[BatchDuration]) -> None:
    """One size only; a falling line; one that begins below nothing."""
    measured = profiles_of(batches, {}, {})

    assert measured.profiles.linear["match"] == LinearCost(setup_ns=0, per_item_ns=10)


def test_what_is_written_down_is_read_again_but_for_a_torn_line(tmp_path: Path) -> None:
    """The worker may be writing."""
    path = tmp_path / "durations"
    log = DurationLog(path)
    log.note(batch(5, items=2))
    log.note(batch(7, kind="import"))
    with path.open("a") as file:
        file.write(json.dumps({"kind": "torn"}))

    assert list(read_durations(path)) == [batch(5, items=2), batch(7, kind="import")]
    assert list(read_durations(tmp_path / "none")) == []


def test_a_file_that_cannot_be_written_costs_no_job_anything(tmp_path: Path) -> None:
    """It is told once, in the log."""
    log = DurationLog(tmp_path)
    log.note(batch(5))
    log.note(batch(5))

    assert list(tmp_path.iterdir()) == []


def test_a_photo_with_a_comment_is_another_file_of_the_same_picture() -> None:
    """The comment follows the two bytes that every JPEG begins with."""
    assert with_comment(b"\xff\xd8rest", "round 7") == b"\xff\xd8\xff\xfe\x00\x09round 7rest"
