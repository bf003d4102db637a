"""Pairing by place is refused, or warned about, before anybody waits for it."""

from pathlib import Path

import pytest
from PIL import Image
from PIL.ExifTags import GPS, IFD

from tasks.errors import ProjectError
from tasks.parameters import PairParameters
from tasks.photo_places import any_has_a_position, check_places


def write_photo(path: Path, *, with_position: bool) -> Path:
    """Write a small JPEG."""
    exif = Image.Exif()
    if with_position:
        exif.get_ifd(IFD.GPSInfo).update(
            {
                GPS.GPSLatitudeRef: "N",
                GPS.GPSLatitude: (46.0, 30.0, 0.0),
                GPS.GPSLongitudeRef: "E",
                GPS.GPSLongitude: (8.0, 0.0, 0.0),
                GPS.GPSAltitude: 500.0,
            }
        )
    Image.new("L", (16, 16)).save(path, exif=exif)
    return path


def test_one_photo_with_a_position_is_enough(tmp_path: Path) -> None:
    """Broken ones and those without say nothing."""
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 broken")
    without = write_photo(tmp_path / "a.jpg", with_position=False)
    assert not any_has_a_position([tmp_path / "broken.jpg", tmp_path / "gone.jpg", without])
    there = write_photo(tmp_path / "b.jpg", with_position=True)

    assert any_has_a_position([without, there])
    assert check_places(tmp_path, PairParameters(strategy="spatial")) is None


def test_spatial_alone_is_refused_without_positions(tmp_path: Path) -> None:
    """Cause and cure."""
    write_photo(tmp_path / "a.jpg", with_position=False)

    with pytest.raises(
        ProjectError, match=r"none of the 1 photos has a GPS position \(.*altitude\), so .* use --pairs auto"
    ):
        check_places(tmp_path, PairParameters(strategy="spatial"))


def test_spatial_beside_others_is_warned_about(tmp_path: Path) -> None:
    """The others still propose pairs."""
    write_photo(tmp_path / "a.jpg", with_position=False)
    warning = check_places(tmp_path, PairParameters(strategy="spatial,retrieval"))

    assert (
        warning == "none of the 1 photos has a GPS position (latitude, longitude and altitude): "
        "pairs come from retrieval alone"
    )


@pytest.mark.parametrize("strategy", ["auto", "exhaustive", "retrieval", "sequential"])
def test_nobody_looks_where_places_are_not_asked_for(tmp_path: Path, strategy: str) -> None:
    """Not even at the folder."""
    assert check_places(tmp_path / "gone", PairParameters(strategy=strategy)) is None
