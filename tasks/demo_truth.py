"""Holds the true cameras of the demo scene, and how far a model is from them.

It renders nothing (``tasks.demo_scene``) and reads no model: the caller brings
the camera centres.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict

Vector = tuple[float, float, float]

_MIN_CENTRES = 3


class TrueView(BaseModel):
    """One true camera: OpenCV axes, ``x_camera = rotation (X - centre_m)``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    centre_m: Vector
    rotation: tuple[Vector, Vector, Vector]
    focal_px: float


class SceneTruth(BaseModel):
    """The true cameras by photo name, in a local frame: east, north, up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    views: dict[str, TrueView]

    @property
    def extent_m(self) -> float:
        """The diagonal of the box around all camera centres."""
        centres = np.array([view.centre_m for view in self.views.values()])
        return float(np.linalg.norm(np.ptp(centres, axis=0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseError:
    """How far estimated camera centres are from the truth, once aligned."""

    centre_rms_m: float
    extent_m: float
    compared_images: int


def compare_with_truth(centres: Mapping[str, ArrayLike], truth: SceneTruth) -> PoseError | None:
    """Align the camera centres (3,) by name to the truth and return what remains.

    Names that the truth does not know are left out. None where fewer than
    three centres remain, or where all of them fall on one point.
    """
    names = sorted(set(centres) & set(truth.views))
    if len(names) < _MIN_CENTRES:
        return None
    estimated = np.array([centres[name] for name in names], np.float64)
    true = np.array([truth.views[name].centre_m for name in names])
    if not np.ptp(estimated, axis=0).any():
        return None
    residuals_m = _aligned(estimated, true) - true
    return PoseError(
        centre_rms_m=float(np.sqrt(np.mean(np.sum(residuals_m**2, axis=1)))),
        extent_m=truth.extent_m,
        compared_images=len(names),
    )


def _aligned(points: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the points (N, 3) after the similarity that brings them nearest to the target (N, 3).

    Umeyama, "Least-squares estimation of transformation parameters between
    two point patterns" (1991), equations 40 to 42. Not pycolmap's
    ``estimate_sim3d``: it refuses centres that lie exactly in one plane.
    """
    from_mean, target_from_mean = points - points.mean(axis=0), target - target.mean(axis=0)
    left, singular_values, right = np.linalg.svd(target_from_mean.T @ from_mean)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left) * np.linalg.det(right))])
    rotation = (left * signs) @ right
    scale = float(singular_values @ signs / np.sum(from_mean**2))
    aligned: NDArray[np.float64] = scale * from_mean @ rotation.T + target.mean(axis=0)
    return aligned


def write_truth(path: Path, truth: SceneTruth) -> None:
    """Write the truth as JSON."""
    path.write_text(truth.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_truth(path: Path) -> SceneTruth:
    """Read what :func:`write_truth` wrote; pydantic.ValidationError where it is something else."""
    return SceneTruth.model_validate_json(path.read_text(encoding="utf-8"))
