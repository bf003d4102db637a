"""Tests of what is told of models, and of the reasons for having none."""

from pathlib import Path

import numpy as np
import pytest

from tasks.georeference import Georeference
from tasks.model_report import ModelReport, ModelSummary, read_report, reason_for_no_model, write_report
from tasks.store import Gps
from tasks.two_view import TwoViewConfig
from tasks.verification import VerifiedPair

A, B, C, D = (letter * 64 for letter in "abcd")


def pair(
    left: str, right: str, inliers: int, config: TwoViewConfig = TwoViewConfig.CALIBRATED
) -> VerifiedPair:
    """Build a verified pair with this many inliers."""
    return VerifiedPair(
        left=left,
        right=right,
        config=config,
        inliers=np.zeros((inliers, 2), np.uint32),
        fundamental=None,
        essential=None,
        homography=None,
    )


def chain(inliers: int, config: TwoViewConfig = TwoViewConfig.CALIBRATED) -> list[VerifiedPair]:
    """Build pairs that connect a, b and c."""
    return [pair(A, B, inliers, config), pair(B, C, inliers, config)]


@pytest.mark.parametrize(
    ("contents", "pairs", "largest_part", "words"),
    [
        ([], [], 0, "0 could be used"),
        ([A, B], [pair(A, B, 500)], 0, "2 could be used"),
        ([A, B, C], [pair(A, B, 0), pair(B, C, 0)], 0, "No two photos show the same details"),
        ([A, B, C, D], [pair(A, B, 50), pair(C, D, 60)], 0, "At most 2 photos overlap each other"),
        ([A, B, C], chain(500, TwoViewConfig.PANORAMIC), 0, "taken from one spot"),
        ([A, B, C], chain(42), 0, "the best shares 42 details"),
        ([A, B, C], chain(500), 2, "Only 2 photos fit into one model"),
    ],
)
def test_the_reason_names_what_is_missing(
    contents: list[str], pairs: list[VerifiedPair], largest_part: int, words: str
) -> None:
    """Each way to have no model has its own sentence."""
    assert words in reason_for_no_model(contents, pairs, 3, largest_part)


def test_groups_join_through_any_pair() -> None:
    """Two groups that one pair connects are one group."""
    pairs = [pair(A, B, 20), pair(C, D, 20), pair(B, D, 20)]

    reason = reason_for_no_model([A, B, C, D], pairs, 5, 0)
    assert "4 could be used" in reason
    assert "overlap each other" not in reason_for_no_model([A, B, C, D], pairs, 4, 0)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    """summary.json loses nothing."""
    gps = Gps(latitude_degrees=46.5, longitude_degrees=8.0, altitude_m=500.5)
    summary = ModelSummary(
        registered_images=2,
        points=10,
        observations=20,
        mean_reprojection_error_px=0.25,
        mean_track_length=2.0,
        images=("a.jpg", "sub/b.jpg"),
        georeference=Georeference(reference=gps, rms_m=0.5, positions_used=2),
    )
    report = ModelReport(models=(summary,), unregistered_images=("c.jpg",), reason=None)

    write_report(tmp_path, report)
    assert read_report(tmp_path) == report
