"""Decides which matches of two images agree with one geometry, and of which type it is.

Knows neither store nor jobs. The rules and ratios are COLMAP's
(TwoViewGeometry); the matrices come from :mod:`tasks.robust_estimation`.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tasks.parameters import VerificationParameters
from tasks.robust_estimation import (
    Flags,
    Matrix,
    ModelEstimate,
    Points,
    estimate_essential,
    estimate_fundamental,
    estimate_homography,
)

# Fewer fix no fundamental matrix.
MIN_MATCHES = 8
# COLMAP: an essential matrix must keep this share of the fundamental one's inliers,
MIN_ESSENTIAL_RATIO = 0.95
# and a homography with this share explains the pair: a plane or a pure rotation.
MAX_HOMOGRAPHY_RATIO = 0.8
WATERMARK_MIN_RATIO = 0.7
WATERMARK_BORDER_RATIO = 0.1
WATERMARK_MAX_ERROR_PX = 4.0
# Looser than the matches' own threshold: the focal length of EXIF is a few percent off.
ROTATION_MAX_ERROR_PX = 4.0


class TwoViewConfig(IntEnum):
    """The type of a two-view geometry, in COLMAP's numbers."""

    UNDEFINED = 0
    DEGENERATE = 1
    CALIBRATED = 2
    UNCALIBRATED = 3
    PLANAR = 4
    PANORAMIC = 5
    PLANAR_OR_PANORAMIC = 6
    WATERMARK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known of an image's camera before any reconstruction."""

    width_px: int
    height_px: int
    prior_focal_length_px: float | None
    """None: not known, only guessed."""

    def calibration(self) -> Matrix | None:
        """Return the camera matrix, OpenCV's pixel convention; None without a prior."""
        if self.prior_focal_length_px is None:
            return None
        focal = self.prior_focal_length_px
        centre_x, centre_y = (self.width_px - 1) / 2, (self.height_px - 1) / 2
        return np.array([[focal, 0.0, centre_x], [0.0, focal, centre_y], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoViewGeometry:
    """What two images have in common.

    ``inliers`` (N,) are the matches of the best model, also of a pair that is
    refused. Matrices map left to right: x_right' F x_left = 0, E likewise in
    normalised coordinates, x_right ~ H x_left; None = not found or refused.
    """

    config: TwoViewConfig
    inliers: Flags
    fundamental: Matrix | None = None
    essential: Matrix | None = None
    homography: Matrix | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the inliers count for tracks: enough of them, of a real scene."""
        return self.config not in {
            TwoViewConfig.UNDEFINED,
            TwoViewConfig.DEGENERATE,
            TwoViewConfig.WATERMARK,
        }


def estimate_two_view(
    left: Points,
    right: Points,
    views: tuple[View, View],
    parameters: VerificationParameters,
    seed: int,
) -> TwoViewGeometry:
    """Estimate the geometry of matched points.

    Args:
        left: (N, 2) pixels in the left image, OpenCV's convention.
        right: (N, 2) the matching pixels in the right image.
        views: both cameras; with both focal lengths an essential matrix is tried.
        parameters: thresholds in pixels of the full images.
        seed: 0..2**31 - 1, of the random samples.
    """
    none = np.zeros(len(left), np.bool_)
    if len(left) < max(parameters.min_inliers, MIN_MATCHES):
        return TwoViewGeometry(config=TwoViewConfig.DEGENERATE, inliers=none)
    calibrations = (views[0].calibration(), views[1].calibration())
    found = _Estimates(
        fundamental=estimate_fundamental(left, right, parameters, seed),
        essential=estimate_essential(left, right, calibrations, parameters, seed),
        homography=estimate_homography(left, right, parameters, seed),
    )
    config, chosen = _choose(found, parameters.min_inliers)
    if chosen is None:
        return TwoViewGeometry(config=TwoViewConfig.DEGENERATE, inliers=none)
    if not is_enough(chosen.inliers, parameters) or not _spans_area(left, right, chosen, parameters):
        return TwoViewGeometry(config=TwoViewConfig.DEGENERATE, inliers=chosen.inliers)
    if _is_watermark(left[chosen.inliers], right[chosen.inliers], views):
        return TwoViewGeometry(config=TwoViewConfig.WATERMARK, inliers=chosen.inliers)
    if config is TwoViewConfig.PLANAR_OR_PANORAMIC and found.homography is not None:
        config = _refined_config(found.homography, left, right, calibrations)
    return TwoViewGeometry(
        config=config,
        inliers=chosen.inliers,
        fundamental=_matrix(found.fundamental),
        essential=_matrix(found.essential),
        homography=_matrix(found.homography),
    )


def is_enough(inliers: Flags, parameters: VerificationParameters) -> bool:
    """Tell whether inliers (N,) are enough in number and as a share of the matches."""
    count = int(inliers.sum())
    return count >= parameters.min_inliers and count >= parameters.min_inlier_ratio * len(inliers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimates:
    fundamental: ModelEstimate | None
    essential: ModelEstimate | None
    homography: ModelEstimate | None


def _choose(found: _Estimates, min_inliers: int) -> tuple[TwoViewConfig, ModelEstimate | None]:
    """Return the type and the model with the most inliers among those that explain the pair."""
    fundamental, essential, homography = (
        estimate if estimate is not None and estimate.count >= min_inliers else None
        for estimate in (found.fundamental, found.essential, found.homography)
    )
    config, reference, chosen = TwoViewConfig.DEGENERATE, fundamental, fundamental
    if essential is not None and _count(essential) >= MIN_ESSENTIAL_RATIO * _count(fundamental):
        config, reference = TwoViewConfig.CALIBRATED, essential
        chosen = fundamental if _count(fundamental) > essential.count else essential
    elif fundamental is not None:
        config = TwoViewConfig.UNCALIBRATED
    if homography is not None and homography.count > MAX_HOMOGRAPHY_RATIO * _count(reference):
        config = TwoViewConfig.PLANAR_OR_PANORAMIC
        chosen = homography if homography.count > _count(chosen) else chosen
    return config, chosen


def _spans_area(
    left: Points, right: Points, chosen: ModelEstimate, parameters: VerificationParameters
) -> bool:
    """Tell whether the inliers lie on no line (or point), within the error: on one they fix no geometry."""
    thinner_px = [
        float(np.sqrt(max(0.0, np.linalg.eigvalsh(np.cov(points[chosen.inliers].T))[0])))
        for points in (left, right)
    ]
    return min(thinner_px) > parameters.max_error_px


def _refined_config(
    homography: ModelEstimate, left: Points, right: Points, calibrations: tuple[Matrix | None, Matrix | None]
) -> TwoViewConfig:
    """Tell a plane from a pure rotation, for which both focal lengths must be known."""
    left_calibration, right_calibration = calibrations
    if left_calibration is None or right_calibration is None:
        return TwoViewConfig.PLANAR_OR_PANORAMIC
    mapping = np.linalg.inv(right_calibration) @ homography.matrix @ left_calibration
    rotation = _nearest_rotation(mapping)
    rotated = _mapped(
        right_calibration @ rotation @ np.linalg.inv(left_calibration), left[homography.inliers]
    )
    errors_px = np.linalg.norm(rotated - right[homography.inliers], axis=1)
    explained = np.count_nonzero(errors_px <= ROTATION_MAX_ERROR_PX)
    is_rotation = explained > MAX_HOMOGRAPHY_RATIO * homography.count
    return TwoViewConfig.PANORAMIC if is_rotation else TwoViewConfig.PLANAR


def _nearest_rotation(mapping: Matrix) -> Matrix:
    """Return the rotation nearest to a multiple of ``mapping`` (orthogonal Procrustes)."""
    left_vectors, _, right_vectors = np.linalg.svd(mapping * np.sign(np.linalg.det(mapping)))
    return np.asarray(left_vectors @ right_vectors, np.float64)


def _mapped(homography: Matrix, points: Points) -> Points:
    homogeneous = np.column_stack((points, np.ones(len(points)))) @ homography.T
    # A point at infinity is simply far from every match.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(homogeneous[:, :2] / homogeneous[:, 2:], np.float64)


def _is_watermark(left: Points, right: Points, views: tuple[View, View]) -> bool:
    """Tell whether most inliers lie near both borders and move by one translation."""
    near_border = _near_border(left, views[0]) & _near_border(right, views[1])
    if near_border.sum() < WATERMARK_MIN_RATIO * len(left):
        return False
    shifts = right - left
    # More than half of the shifts agree, or it is no watermark: then the median is
    # among them, and the mean around it is their centre.
    median = np.median(shifts, axis=0)
    around = np.linalg.norm(shifts - median, axis=1) <= 2 * WATERMARK_MAX_ERROR_PX
    if not around.any():
        return False
    centre = shifts[around].mean(axis=0)
    agreeing = np.linalg.norm(shifts - centre, axis=1) <= WATERMARK_MAX_ERROR_PX
    return bool(agreeing.sum() >= WATERMARK_MIN_RATIO * len(left))


def _near_border(points: Points, view: View) -> Flags:
    border_px = WATERMARK_BORDER_RATIO * float(np.hypot(view.width_px, view.height_px))
    far_side = np.array([view.width_px, view.height_px]) - border_px
    return np.asarray(((points < border_px) | (points > far_side)).any(axis=1), np.bool_)


def _matrix(estimate: ModelEstimate | None) -> Matrix | None:
    return None if estimate is None else estimate.matrix


def _count(estimate: ModelEstimate | None) -> int:
    return 0 if estimate is None else estimate.count
