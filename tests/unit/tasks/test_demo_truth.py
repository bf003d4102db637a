"""Tests of the comparison with the demo's truth."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.demo_truth import SceneTruth, TrueView, compare_with_truth, read_truth, write_truth

CORNERS = {"a": (0, 0, 0), "b": (30, 0, 0), "c": (0, 40, 0), "d": (0, 0, 120)}
IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def truth() -> SceneTruth:
    """Build four cameras whose box has the sides 30, 40 and 120, so the diagonal 130."""
    views = {
        name: TrueView(centre_m=centre, rotation=IDENTITY, focal_px=900.0) for name, centre in CORNERS.items()
    }
    return SceneTruth(views=views)


def moved(centre: tuple[float, float, float]) -> NDArray[np.float64]:
    """Apply one similarity: a quarter turn about z, a tenth of the size, a shift."""
    x, y, z = centre
    return np.array([-y, x, z]) / 10 + (5, 6, 7)


def test_a_similarity_of_the_truth_has_no_error() -> None:
    """Where a model lies, how it is turned and its scale are free."""
    error = compare_with_truth({name: moved(centre) for name, centre in CORNERS.items()}, truth())

    assert error is not None
    assert error.centre_rms_m == pytest.approx(0, abs=1e-9)
    assert error.extent_m == pytest.approx(130)


def test_a_displaced_camera_shows_in_metres() -> None:
    """One centre 1 m off leaves an error below 1 m, and well above rounding."""
    centres = {name: np.array(centre, np.float64) for name, centre in CORNERS.items()}
    centres["b"] += (0, 0, 1.0)

    error = compare_with_truth(centres, truth())

    assert error is not None
    assert 0.1 < error.centre_rms_m < 0.5


@pytest.mark.parametrize(("names", "compared"), [("ab", None), ("abc", 3), ("abx", None), ("abcdx", 4)])
def test_three_known_centres_are_needed(names: str, compared: int | None) -> None:
    """Two centres fix no similarity; names outside the truth do not count."""
    centres = {name: moved(CORNERS.get(name, (1, 2, 3))) for name in names}

    error = compare_with_truth(centres, truth())

    assert (None if error is None else error.compared_images) == compared


def test_truth_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The JSON file loses nothing."""
    write_truth(tmp_path / "truth.json", truth())

    assert read_truth(tmp_path / "truth.json") == truth()
