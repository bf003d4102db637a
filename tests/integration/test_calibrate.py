"""A real worker is measured over rounds of photos of their own."""

from pathlib import Path

from worker.calibrate import Wanted, calibrate
from worker.calibration import Measured
from worker.duration_log import read_durations
from worker.local_run import LocalOptions

PHOTOS = 15
"""Of the rendered flight."""


def test_every_round_is_worked_on_anew_and_the_first_is_not_counted(tmp_path: Path) -> None:
    """Photos that are there already would teach nothing; imports alone, for they are fast."""
    told: list[Measured] = []
    measured = calibrate(
        tmp_path,
        LocalOptions(until="import", cpus=1, profile="dedicated"),
        Wanted(seconds=3600.0, rounds=2),
        lambda progress, _seconds: told.append(progress),
    )
    imports = [batch for batch in read_durations(tmp_path / "durations") if batch.kind == "import.images"]

    assert len({photo.read_bytes() for photo in tmp_path.glob("store/calibration/*/*")}) == 3 * PHOTOS
    assert sum(batch.items for batch in imports) == 3 * PHOTOS
    counted = sum(count for key, count in measured.samples.items() if key.kind == "import.images")
    assert 0 < counted < len(imports)
    assert len(told) >= 2
    assert "import.images" in measured.profiles.linear
