"""A machine with memory for one large photo at a time: every photo is done, the kernel kills nothing."""

from typing import Any

import pytest

from tests.bench.small_memory import LIMIT_BYTES, SIDES, measure
from tests.conftest import PhotoSet
from tests.memory_cgroup import NoMemoryCgroupError

PHOTOS = 4
"""Two would do to overlap; four make it more than luck that they do not."""
KEPT_BACK_BYTES = 512 * 2**20
"""By the profile `dedicated`; two photos at once go beyond it even where their peaks do not coincide."""


@pytest.fixture(scope="module")
def report(photos: PhotoSet) -> dict[str, Any]:
    """Run the bench on a few photos, stock Celery beside ours."""
    chosen = sorted(photos("banana").iterdir())[:PHOTOS]
    try:
        return measure(chosen, SIDES, timeout_seconds=120.0)
    except NoMemoryCgroupError as error:
        pytest.skip(str(error))


def test_ours_finishes_every_photo_without_a_kernel_kill(report: dict[str, Any]) -> None:
    """It sees the limit of its cgroup, and leaves free what its profile keeps back."""
    ours = report["tiepoint"]

    assert (ours["kernel_kills"], ours["finished"], ours["failed"]) == (0, PHOTOS, 0)
    assert ours["peak_bytes"] is None or ours["peak_bytes"] < LIMIT_BYTES - KEPT_BACK_BYTES


def test_both_sides_are_reported_alike(report: dict[str, Any]) -> None:
    """What becomes of stock is measured, not asserted: nobody here promises that it fails."""
    assert report["limit_bytes"] == LIMIT_BYTES
    for side in ("stock", "tiepoint"):
        assert {"kernel_kills", "finished", "seconds"} <= set(report[side])
        assert report[side]["jobs"] == PHOTOS
        assert report[side]["seconds"] > 0
