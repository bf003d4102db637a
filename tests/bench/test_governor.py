"""The governor's bench measures, and a governor that decides for a long time does not grow."""

import json

import pytest

from tests.bench.governor import main

GROWTH_BYTES = 2 * 2**20
"""A tenth of what 50,000 decisions take where each is kept (22 MB)."""


def test_a_short_run_measures_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """However fast: that depends on the machine. The ratios are those of the medians."""
    assert main(["--json", "--cycles", "200", "--decisions", "50000"]) == 0
    report = json.loads(capsys.readouterr().out)

    for part in ("decide_reserve_release", "snapshot"):
        ratio = report[f"{part}_us_median"] / report["pure_python_loop_us_median"]
        assert report[f"{part}_to_loop_ratio"] == pytest.approx(ratio, rel=0.02)
    assert report["decisions"] == 50_000
    assert report["memory_growth_bytes"] < GROWTH_BYTES
