"""The command leaves what it has measured in the file, whatever ends it."""

import signal
from pathlib import Path

import pytest

from governor.planning.profile import CellKey
from worker import calibrate_command
from worker.calibrate import OnProgress, Wanted
from worker.calibration import Measured, profiles_of
from worker.command_endings import Interrupted
from worker.duration_log import BatchDuration
from worker.local_run import LocalOptions
from worker.profile_file import read_profiles

BATCH = BatchDuration(kind="matcher.run", variant="cpu", items=8, others=1, duration_ns=80)
KEY = CellKey(kind="matcher.run", batch_class=8, occupancy=1)


def interrupt(monkeypatch: pytest.MonkeyPatch, out: Path, *, told: list[Measured]) -> Interrupted:
    """Calibrate until a signal comes, which is when so much has been told."""

    def measure(_folder: Path, _options: LocalOptions, _wanted: Wanted, on_progress: OnProgress) -> Measured:
        for measured in told:
            on_progress(measured, 5.0)
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(calibrate_command, "calibrate", measure)
    with pytest.raises(Interrupted) as raised:
        calibrate_command.calibrate_command(out=out)
    return raised.value


def test_what_was_measured_until_a_signal_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cells that have enough by then; the sentence says where they are."""
    out = tmp_path / "p.json"
    interruption = interrupt(
        monkeypatch, out, told=[profiles_of([BATCH] * 99, {}, {}), profiles_of([BATCH] * 100, {}, {})]
    )

    assert list(read_profiles(out).cells) == [KEY]
    assert interruption.go_on.startswith(f"what was measured is in {out}")


def test_a_signal_before_anything_was_measured_leaves_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The profiles of an earlier time are not lost, and nobody is told that there were new ones."""
    out = tmp_path / "p.json"
    out.write_text("earlier")
    interruption = interrupt(monkeypatch, out, told=[])

    assert out.read_text() == "earlier"
    assert interruption.go_on == f"nothing was measured yet; {out} is as it was"
