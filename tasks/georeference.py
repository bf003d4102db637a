"""Decides whether a model can be laid on the photos' GPS positions, and does it.

The frame is local: east, north, up, in metres, around one reference position.
"""

from collections.abc import Mapping

import numpy as np
import pycolmap
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tasks.store import Gps

MIN_POSITIONS = 3
MAX_ERROR_M = 10.0
"""Positions farther off than this do not count: phones err by 5 to 10 m, drones by 2 m."""
MIN_SPREAD_M = 2.0
"""The root mean square extent that the positions need along their second axis."""
_RANDOM_SEED = 1

Positions = NDArray[np.float64]


class Georeference(BaseModel):
    """How a model was laid on its positions, or the reason why it was not.

    ``reason`` is None where the model is aligned; the rest is None else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str | None = None
    reference: Gps | None = None
    """The origin of the model's frame: east, north, up, in metres."""
    rms_m: float | None = None
    """Distance of the camera centres from the positions that count (within MAX_ERROR_M)."""
    positions_used: int | None = None


def georeference(
    model: pycolmap.Reconstruction, positions: Mapping[str, Gps], reference: Gps | None
) -> Georeference:
    """Move, turn and scale ``model`` in place so that its cameras meet their positions.

    ``positions`` are by image name; ``reference`` is the origin of the local
    frame, one for all models of a project.
    """
    centres = {
        image.name: image.projection_center()
        for image in (model.image(image_id) for image_id in model.reg_image_ids())
        if image.name in positions
    }
    names = sorted(centres)
    if len(names) < MIN_POSITIONS or reference is None:
        return Georeference(
            reason=f"{len(names)} registered photos have a GPS position, {MIN_POSITIONS} are needed"
        )
    targets_m = local_positions([positions[name] for name in names], reference)
    if _second_spread_m(targets_m) < MIN_SPREAD_M:
        return Georeference(reason="the GPS positions lie on one line or point, which fixes no orientation")
    new_from_old = pycolmap.align_reconstruction_to_locations(
        model, names, targets_m, MIN_POSITIONS, _ransac_options()
    )
    if new_from_old is None:
        return Georeference(reason="the GPS positions contradict the model")
    model.transform(new_from_old)
    aligned = np.array([new_from_old * centres[name] for name in names])
    errors_m = np.linalg.norm(aligned - targets_m, axis=1)
    used = errors_m[errors_m <= MAX_ERROR_M]
    rms_m = float(np.sqrt(np.mean(used**2))) if used.size else float("inf")
    return Georeference(reference=reference, rms_m=rms_m, positions_used=int(used.size))


def local_positions(positions: list[Gps], reference: Gps) -> Positions:
    """Return positions as metres east, north, up of the reference: float64 (N, 3)."""
    degrees = np.array([[gps.latitude_degrees, gps.longitude_degrees, gps.altitude_m] for gps in positions])
    return np.asarray(
        pycolmap.GPSTransform().ellipsoid_to_enu(
            degrees, reference.latitude_degrees, reference.longitude_degrees, reference.altitude_m
        ),
        np.float64,
    )


def _second_spread_m(positions_m: Positions) -> float:
    """Return the root mean square extent along the second principal axis; about 0 for a line."""
    centred = positions_m - positions_m.mean(axis=0)
    return float(np.linalg.svd(centred, compute_uv=False)[1] / np.sqrt(len(centred)))


def _ransac_options() -> pycolmap.RANSACOptions:
    options = pycolmap.RANSACOptions()
    options.max_error = MAX_ERROR_M
    options.random_seed = _RANDOM_SEED
    return options
