"""Matches with cv2.BFMatcher: the reference of the matching kernel."""

from fractions import Fraction
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from tasks.parameters import Extractor

Descriptors = NDArray[np.uint8]


def reference_matches(
    left: Descriptors, right: Descriptors, extractor: Extractor, ratio: float, *, cross_check: bool
) -> list[list[int]]:
    """Match with cv2.BFMatcher, the ratio test in exact integers."""
    norm, power = (cv2.NORM_HAMMING, 1) if extractor == "orb" else (cv2.NORM_L2SQR, 2)
    matcher = cv2.BFMatcher(norm)
    queries, trains = (part if extractor == "orb" else part.astype(np.float32) for part in (left, right))
    back = {found[0].queryIdx: found[0].trainIdx for found in matcher.knnMatch(trains, queries, 1)}
    limit = Fraction(str(ratio)) ** power

    def accepted(neighbours: Any) -> bool:
        nearest = neighbours[0]
        distinct = len(neighbours) == 1 or int(nearest.distance) < limit * int(neighbours[1].distance)
        return distinct and (not cross_check or back[nearest.trainIdx] == nearest.queryIdx)

    found = [neighbours for neighbours in matcher.knnMatch(queries, trains, 2) if accepted(neighbours)]
    return [[neighbours[0].queryIdx, neighbours[0].trainIdx] for neighbours in found]
