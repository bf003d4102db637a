"""``tiepoint run`` on a disk that fills up: it waits, says so, and ends with the same tracks."""

from pathlib import Path
from typing import IO

from tests.acceptance.conftest import DEADLINE_SECONDS, artefacts, start_tiepoint, tiepoint, wait_until
from tests.conftest import PhotoSet
from tests.plain_runner import PlainResult
from tests.small_disk import small_disk

DISK_BYTES = 128 * 2**20
DEDICATED = ("--profile", "dedicated")


def lines_up_to(told: IO[str] | None, words: str) -> list[str]:
    """Return what a run says up to the first line with these words; or all, where there is none."""
    lines: list[str] = []
    for line in told or ():
        lines.append(line)
        if words in line:
            break
    return lines


def test_a_run_whose_disk_fills_up_goes_on_when_there_is_room(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path
) -> None:
    """Nothing is failed or tried again for it; what the photos become is the same, byte for byte."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        project = disk.folder / "p"
        run = start_tiepoint("run", photos("kermit"), "--project", project, "--json", *DEDICATED)
        wait_until(lambda: artefacts(project, "features.extract.rootsift") >= 2, "features appear")
        disk.fill()
        told = lines_up_to(run.stderr, "waiting for the store: ")
        status = tiepoint("status", project)
        disk.free()
        out, rest = run.communicate(timeout=DEADLINE_SECONDS)
        left = [path.name for path in project.rglob(".tmp-*")]

    assert "the disk is full (" in told[-1]
    assert (status.returncode, run.returncode, left) == (0, 0, [])
    assert "the store is back" in rest
    assert f'"tracks_sha256": "{plain_kermit.tracks_sha256}"' in out
    assert '"failed": 0, "retried": 0' in out
    assert '"failures": []' in out
