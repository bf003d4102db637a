"""Tests of laying a model on GPS positions."""

import numpy as np
import pycolmap
import pytest

from tasks.georeference import MAX_ERROR_M, MIN_SPREAD_M, georeference, local_positions
from tasks.store import Gps

Places = dict[str, tuple[float, float, float]]

REFERENCE = Gps(latitude_degrees=46.5, longitude_degrees=8.0, altitude_m=500.0)
# Five cameras on two strips, in metres; no two distances alike.
PLACES_M: Places = {"a": (0, 0, 30), "b": (20, 1, 31), "c": (41, 0, 30), "d": (0, 25, 32), "e": (22, 26, 30)}


def model_of(places: Places) -> pycolmap.Reconstruction:
    """Build a model with a camera at a tenth of each place, turned by a quarter about z."""
    model = pycolmap.Reconstruction()
    camera = pycolmap.Camera.create_from_model_name(1, "SIMPLE_RADIAL", 900, 640, 480)
    model.add_camera_with_trivial_rig(camera)
    for image_id, (name, (x, y, z)) in enumerate(places.items(), start=1):
        image = pycolmap.Image(name=name, camera_id=1, image_id=image_id)
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(), -np.array([-y, x, z]) / 10)
        model.add_image_with_trivial_frame(image, pose)
    return model


def gps_at(places: Places) -> dict[str, Gps]:
    """Return positions at these places around the reference."""
    reference = (REFERENCE.latitude_degrees, REFERENCE.longitude_degrees, REFERENCE.altitude_m)
    rows = pycolmap.GPSTransform().enu_to_ellipsoid(np.array(list(places.values()), float), *reference)
    return {
        name: Gps(latitude_degrees=latitude, longitude_degrees=longitude, altitude_m=altitude)
        for name, (latitude, longitude, altitude) in zip(places, rows.tolist(), strict=True)
    }


def centres(model: pycolmap.Reconstruction) -> dict[str, list[float]]:
    """Return the camera centres by name."""
    return {image.name: image.projection_center().tolist() for image in model.images.values()}


def test_an_aligned_model_is_in_metres_east_north_up() -> None:
    """Every camera comes to its place, whatever frame the mapper chose."""
    model = model_of(PLACES_M)

    result = georeference(model, gps_at(PLACES_M), REFERENCE)

    assert result.reason is None
    assert result.reference == REFERENCE
    assert result.positions_used == len(PLACES_M)
    assert result.rms_m == pytest.approx(0, abs=1e-3)
    for name, centre in centres(model).items():
        assert centre == pytest.approx(PLACES_M[name], abs=1e-2)


def test_a_stray_position_does_not_bend_the_model() -> None:
    """One photo whose GPS is 500 m off is left out."""
    model = model_of(PLACES_M)
    strayed = gps_at({**PLACES_M, "c": (541, 0, 30)})

    result = georeference(model, strayed, REFERENCE)

    assert result.positions_used == len(PLACES_M) - 1
    assert centres(model)["c"] == pytest.approx(PLACES_M["c"], abs=0.1)


@pytest.mark.parametrize(("names", "is_aligned"), [("ab", False), ("abd", True)])
def test_three_positions_are_needed(names: str, *, is_aligned: bool) -> None:
    """With two the model could still turn; it is left as it is."""
    model = model_of(PLACES_M)
    before = centres(model)
    positions = {name: gps for name, gps in gps_at(PLACES_M).items() if name in names}

    result = georeference(model, positions, REFERENCE)

    assert (result.reason is None) is is_aligned
    assert (centres(model) != before) is is_aligned


@pytest.mark.parametrize(
    ("width_m", "is_aligned"), [(0.99 * MIN_SPREAD_M, False), (1.01 * MIN_SPREAD_M, True)]
)
def test_positions_on_one_line_fix_no_orientation(width_m: float, *, is_aligned: bool) -> None:
    """Four places in a rectangle whose half width is just below, just above the limit."""
    places: Places = {
        "a": (0, -width_m, 5),
        "b": (0, width_m, 5),
        "c": (60, -width_m, 5),
        "d": (60, width_m, 5),
    }
    model = model_of(places)

    result = georeference(model, gps_at(places), REFERENCE)

    assert (result.reason is None) is is_aligned


def test_positions_that_contradict_the_model_are_refused() -> None:
    """Where no three positions agree with the model within the error, it stays as it is, with the reason."""
    far_m = 100 * MAX_ERROR_M
    shuffled: Places = {
        "a": (far_m, 0, 0),
        "b": (0, 0, far_m),
        "c": (0, far_m, 0),
        "d": (far_m, far_m, 9),
        "e": (3, 5, 7),
    }
    model = model_of(PLACES_M)
    before = centres(model)

    result = georeference(model, gps_at(shuffled), REFERENCE)

    assert result.reason is not None
    assert centres(model) == before


def test_local_positions_are_east_north_up() -> None:
    """A step north is about 111 m per thousandth of a degree, a step up is up."""
    north = REFERENCE.model_copy(update={"latitude_degrees": 46.501})
    up = REFERENCE.model_copy(update={"altitude_m": 510.0})

    positions_m = local_positions([REFERENCE, north, up], REFERENCE)

    assert positions_m[0] == pytest.approx([0, 0, 0], abs=1e-6)
    assert positions_m[1] == pytest.approx([0, 111.2, 0], abs=0.1)
    assert positions_m[2] == pytest.approx([0, 0, 10], abs=1e-6)
