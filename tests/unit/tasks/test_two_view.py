"""Two-view geometry recognises what kind of pair it has, and repeats itself."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.parameters import VerificationParameters
from tasks.two_view import TwoViewConfig, TwoViewGeometry, View, estimate_two_view, is_enough

FOCAL_PX = 900.0
WIDTH_PX, HEIGHT_PX = 1200, 800
CALIBRATED = View(width_px=WIDTH_PX, height_px=HEIGHT_PX, prior_focal_length_px=FOCAL_PX)
UNCALIBRATED = View(width_px=WIDTH_PX, height_px=HEIGHT_PX, prior_focal_length_px=None)
PARAMETERS = VerificationParameters()

Points = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """How the right camera stands to the left one."""

    turn_degrees: float = 5.0
    shift: tuple[float, float, float] = (1.0, 0.1, 0.2)


def seen_points(
    motion: Motion, *, count: int = 300, depths: tuple[float, float] = (5.0, 15.0), noise_px: float = 0.3
) -> tuple[Points, Points]:
    """Project random points into two views; equal depths make a plane."""
    rng = np.random.default_rng(1)
    left = rng.uniform((100, 100), (WIDTH_PX - 100, HEIGHT_PX - 100), (count, 2))
    centre = np.array([(WIDTH_PX - 1) / 2, (HEIGHT_PX - 1) / 2])
    rays = np.column_stack(((left - centre) / FOCAL_PX, np.ones(count)))
    points = rays * rng.uniform(*depths, (count, 1))
    angle = math.radians(motion.turn_degrees)
    rotation = np.array(
        [[math.cos(angle), 0, math.sin(angle)], [0, 1, 0], [-math.sin(angle), 0, math.cos(angle)]]
    )
    turned = points @ rotation.T + np.array(motion.shift)
    right = turned[:, :2] / turned[:, 2:] * FOCAL_PX + centre
    return left, right + rng.normal(0, noise_px, right.shape)


def geometry_of(
    points: tuple[Points, Points], view: View = CALIBRATED, parameters: VerificationParameters = PARAMETERS
) -> TwoViewGeometry:
    """Estimate with one fixed seed."""
    return estimate_two_view(*points, (view, view), parameters, seed=7)


@pytest.mark.parametrize(
    ("view", "config"),
    [(CALIBRATED, TwoViewConfig.CALIBRATED), (UNCALIBRATED, TwoViewConfig.UNCALIBRATED)],
)
def test_general_scene_keeps_true_matches_only(view: View, config: TwoViewConfig) -> None:
    """A third of wrong matches is left out, with and without known focal lengths."""
    left, right = seen_points(Motion())
    wrong = slice(0, 100)
    right[wrong] = np.random.default_rng(2).uniform((0, 0), (WIDTH_PX, HEIGHT_PX), (100, 2))

    geometry = geometry_of((left, right), view)

    assert geometry.config is config
    assert geometry.is_accepted
    assert geometry.inliers[100:].mean() > 0.98
    assert geometry.inliers[wrong].mean() < 0.1


def test_fundamental_matrix_maps_left_to_right() -> None:
    """x_right' F x_left vanishes, in this order."""
    left, right = seen_points(Motion(), noise_px=0.0)

    fundamental = geometry_of((left, right)).fundamental

    assert fundamental is not None
    lines = np.column_stack((left, np.ones(len(left)))) @ fundamental.T
    residuals = (lines * np.column_stack((right, np.ones(len(right))))).sum(axis=1)
    assert np.abs(residuals / np.linalg.norm(lines[:, :2], axis=1)).max() < 0.01


@pytest.mark.parametrize(
    ("motion", "view", "config"),
    [
        (Motion(), CALIBRATED, TwoViewConfig.PLANAR),
        (Motion(shift=(0, 0, 0)), CALIBRATED, TwoViewConfig.PANORAMIC),
        (Motion(), UNCALIBRATED, TwoViewConfig.PLANAR_OR_PANORAMIC),
    ],
)
def test_plane_and_rotation_are_told_apart(motion: Motion, view: View, config: TwoViewConfig) -> None:
    """A homography explains both; only known focal lengths tell which it is. Both are accepted."""
    geometry = geometry_of(seen_points(motion, depths=(8.0, 8.0)), view)

    assert geometry.config is config
    assert geometry.is_accepted
    assert geometry.homography is not None


def test_rotation_is_recognised_at_any_depth() -> None:
    """Without translation depth does not show."""
    geometry = geometry_of(seen_points(Motion(shift=(0, 0, 0)), depths=(2.0, 50.0)))

    assert geometry.config is TwoViewConfig.PANORAMIC


def watermark_points(share_near_border: float, *, spread_px: float = 0.0) -> tuple[Points, Points]:
    """Return matches that do not move, a share of them in the lower border."""
    rng = np.random.default_rng(3)
    near = round(100 * share_near_border)
    border = rng.uniform((100, HEIGHT_PX - 50), (WIDTH_PX - 100, HEIGHT_PX - 5), (near, 2))
    inner = rng.uniform((300, 250), (WIDTH_PX - 300, HEIGHT_PX - 250), (100 - near, 2))
    left = np.vstack([border, inner])
    # A stretch instead of a translation, still one homography.
    right = left * (1 + spread_px / WIDTH_PX) + rng.normal(0, 0.1, left.shape)
    return left, right


@pytest.mark.parametrize(
    ("share_near_border", "spread_px", "is_watermark"),
    [(0.75, 0.0, True), (0.65, 0.0, False), (0.75, 100.0, False)],
)
def test_watermark_is_still_points_near_the_border(
    share_near_border: float, spread_px: float, *, is_watermark: bool
) -> None:
    """70 % of the inliers must lie near the border and share one translation."""
    geometry = geometry_of(watermark_points(share_near_border, spread_px=spread_px))

    assert (geometry.config is TwoViewConfig.WATERMARK) is is_watermark
    assert geometry.is_accepted is not is_watermark


@pytest.mark.parametrize(("count", "accepted"), [(14, False), (15, True)])
def test_fifteen_inliers_are_accepted(count: int, *, accepted: bool) -> None:
    """One match fewer than the minimum is refused."""
    geometry = geometry_of(seen_points(Motion(), count=count, noise_px=0.0))

    assert geometry.is_accepted is accepted


@pytest.mark.parametrize(("inlier_count", "accepted"), [(19, False), (20, True)])
def test_a_fifth_of_inliers_is_accepted(inlier_count: int, *, accepted: bool) -> None:
    """One inlier fewer than a fifth of the matches is refused."""
    inliers = np.arange(100) < inlier_count

    assert is_enough(inliers, PARAMETERS) is accepted


@pytest.mark.parametrize(
    "points",
    [
        np.empty((0, 2)),
        np.full((40, 2), 5.0),
        np.column_stack((np.arange(40.0), np.arange(40.0))),
    ],
    ids=["none", "one place", "one line"],
)
def test_degenerate_points_are_refused_quietly(points: Points) -> None:
    """Matches that fix no geometry give a value, not an error."""
    moved = points + np.random.default_rng(4).uniform(0, 500, points.shape)

    geometry = geometry_of((points, moved))

    assert not geometry.is_accepted
    assert geometry.inliers.shape == (len(points),)


def test_random_matches_are_refused() -> None:
    """Chance agreement of 15 or more stays below the acceptance ratio; no matrix is kept."""
    rng = np.random.default_rng(5)
    points = rng.uniform((0, 0), (WIDTH_PX, HEIGHT_PX), (2, 2000, 2))

    geometry = geometry_of((points[0], points[1]))

    assert geometry.inliers.sum() >= 15
    assert geometry.config is TwoViewConfig.DEGENERATE
    assert geometry.fundamental is None


def noisy_pair() -> tuple[Points, Points]:
    """Return a pair with half of its matches wrong, so that the random samples matter."""
    left, right = seen_points(Motion(), count=400, noise_px=0.8)
    right[:200] = np.random.default_rng(6).uniform((0, 0), (WIDTH_PX, HEIGHT_PX), (200, 2))
    return left, right


def fingerprint() -> str:
    """Return all bytes of a geometry as text."""
    geometry = geometry_of(noisy_pair())
    matrices = (geometry.fundamental, geometry.essential, geometry.homography)
    parts = [matrix.tobytes().hex() for matrix in matrices if matrix is not None]
    return " ".join([str(int(geometry.config)), geometry.inliers.tobytes().hex(), *parts])


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_result_is_the_same_for_any_thread_count_and_process(threads: int) -> None:
    """The seed decides the random samples, not OpenCV's threads, its state or the process."""
    here = fingerprint()
    code = (
        f"import cv2; cv2.setNumThreads({threads})\n"
        "from tests.unit.tasks.test_two_view import fingerprint; print(fingerprint())"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))

    elsewhere = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert elsewhere.stdout.strip() == here


def test_opencv_threads_are_not_changed() -> None:
    """Estimating leaves the process's thread setting alone."""
    before = cv2.getNumThreads()

    geometry_of(noisy_pair())

    assert cv2.getNumThreads() == before
