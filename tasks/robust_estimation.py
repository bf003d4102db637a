"""Holds the robust estimators: OpenCV's USAC with MAGSAC scoring and sigma-consensus refinement.

One sequential run with a given seed repeats itself bit by bit in every
process, whatever OpenCV's thread count (tests/unit/tasks/test_two_view.py).
Which model describes a pair is decided in :mod:`tasks.two_view`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.allocation_failures import is_allocation_failure
from tasks.parameters import VerificationParameters

Points = NDArray[np.float64]
"""(N, 2) pixel coordinates."""
Matrix = NDArray[np.float64]
"""(3, 3)."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEstimate:
    """One matrix and the matches (N,) that it explains."""

    matrix: Matrix
    inliers: Flags

    @property
    def count(self) -> int:
        """Return the number of inliers."""
        return int(self.inliers.sum())


def estimate_fundamental(
    left: Points, right: Points, parameters: VerificationParameters, seed: int
) -> ModelEstimate | None:
    """Estimate the fundamental matrix of matched pixels (N, 2); None where there is none."""
    return _estimate(cv2.findFundamentalMat, left, right, params=_usac(parameters, seed))


def estimate_homography(
    left: Points, right: Points, parameters: VerificationParameters, seed: int
) -> ModelEstimate | None:
    """Estimate the homography from left to right pixels (N, 2); None where there is none."""
    return _estimate(cv2.findHomography, left, right, params=_usac(parameters, seed))


def estimate_essential(
    left: Points,
    right: Points,
    calibrations: tuple[Matrix | None, Matrix | None],
    parameters: VerificationParameters,
    seed: int,
) -> ModelEstimate | None:
    """Estimate the essential matrix of matched pixels (N, 2); None where a camera matrix is not known.

    OpenCV divides the pixel threshold by the mean focal length.
    """
    if calibrations[0] is None or calibrations[1] is None:
        return None
    no_distortion = np.zeros(4)
    return _estimate(
        cv2.findEssentialMat,
        left,
        right,
        *calibrations,
        no_distortion,
        no_distortion,
        params=_usac(parameters, seed),
    )


def _estimate(
    function: Callable[..., Any], left: Points, right: Points, *args: Any, **kwargs: Any
) -> ModelEstimate | None:
    try:
        matrix, inliers = function(left, right, *args, **kwargs)
    except cv2.error as error:
        if is_allocation_failure(error):
            raise
        # Degenerate points (all equal, on a line) make some estimators raise instead of failing.
        return None
    if matrix is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all() or not matrix.any():
        return None
    return ModelEstimate(matrix=np.asarray(matrix, np.float64), inliers=inliers.reshape(-1) != 0)


def _usac(parameters: VerificationParameters, seed: int) -> cv2.UsacParams:
    """Return fresh USAC settings: the estimators must not see each other's state."""
    usac = cv2.UsacParams()
    usac.threshold = parameters.max_error_px
    usac.confidence = parameters.confidence
    usac.maxIterations = parameters.max_iterations
    usac.score = cv2.SCORE_METHOD_MAGSAC
    usac.loMethod = cv2.LOCAL_OPTIM_SIGMA
    usac.final_polisher = cv2.MAGSAC
    usac.sampler = cv2.SAMPLING_UNIFORM
    usac.randomGeneratorState = seed
    usac.isParallel = False
    return usac
