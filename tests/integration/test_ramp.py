"""A ramp on a real worker, cut down to two short runs."""

import pytest

from worker.ramp import Wanted, ramp
from worker.ramp_scene import RampScene


@pytest.fixture
def wanted() -> Wanted:
    """Return a light load, by a fixed and a learned margin."""
    return Wanted(
        loads=(20,), profiles=("right",), margins=("fixed", "learned"), cycles=6, repeats=1, samples=100
    )


def test_at_a_light_load_a_real_worker_delivers_everything(wanted: Wanted) -> None:
    """All 15 photos of six periods, whatever the margin: it is a fifth of what it was measured to do."""
    told: list[str] = []
    with RampScene() as scene:
        found = ramp(scene, wanted, lambda what, *_: told.append(what))

    assert [(row.margin, row.delivered) for row in found.rows] == [("fixed", 15), ("learned", 15)]
    assert [row.device_factor_percent > 0 for row in found.rows] == [False, True]
    assert sum(found.p50_ms.values()) > 0
    assert told == [
        "measuring",
        "right, 100 %, learned margin",
        *(f"right, 20 %, {m} margin" for m in wanted.margins),
    ]
