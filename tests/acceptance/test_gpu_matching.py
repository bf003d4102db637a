"""A real worker with a mock card and a real OpenCL device matches there, to the same tracks."""

import os
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tasks.gpu_matching import KINDS
from tasks.pair_jobs import GpuMatchPayload
from tasks.parameters import ExecutionParameters, FeatureParameters, ProjectParameters
from tests.acceptance.conftest import TIEPOINT, Finished, tiepoint
from tests.acceptance.measured_peak import peak_bytes
from tests.conftest import PhotoSet
from tests.mock_cards import INTEL, MockCard, needs_umockdev, under_umockdev
from tests.opencl_device import ENVIRONMENT, needs_pocl
from tests.unit.tasks.scene_store import build_scene

IN_THE_RAM = MockCard(number=0, vendor=INTEL, device="0x9a49")
OPTIONS = ("--features", "orb", "--max-features", "1024", "--max-image-size", "800", "--until", "tracks")
DEDICATED = ("--profile", "dedicated", "--json")
MOST_FEATURES = 8192


def with_a_card(
    folder: Path, *arguments: str | Path, environment: Mapping[str, str] = ENVIRONMENT
) -> Finished:
    """Run a command to its end on a machine that has a card in its RAM."""
    done = subprocess.run(
        [*under_umockdev(folder, IN_THE_RAM), *TIEPOINT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return Finished(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


@needs_pocl
@needs_umockdev
def test_a_project_matched_on_the_gpu_has_the_tracks_of_one_matched_on_the_cpu(
    photos: PhotoSet, tmp_path: Path
) -> None:
    """Same bytes, all pairs matched there, within what was reserved."""
    on_gpu = with_a_card(
        tmp_path,
        "run",
        photos("kermit"),
        "--project",
        tmp_path / "gpu",
        "--matcher",
        "gpu",
        *OPTIONS,
        *DEDICATED,
    ).summary
    on_cpu = tiepoint("run", photos("kermit"), "--project", tmp_path / "cpu", *OPTIONS, *DEDICATED).summary
    log = (tmp_path / "gpu" / "projects" / "main" / "worker.log").read_text()

    assert on_gpu["tracks"] > 100
    assert on_gpu["tracks_sha256"] == on_cpu["tracks_sha256"]
    assert "matcher.run" not in on_gpu["kinds"]
    assert on_gpu["kinds"]["matcher.run.gpu"]["worst_ratio"] <= 1
    assert "on the CPU" not in log


@needs_pocl
@needs_umockdev
def test_a_machine_that_cannot_refuses_before_anything_is_made(photos: PhotoSet, tmp_path: Path) -> None:
    """In one sentence: a card alone is not enough, and PoCL is no GPU unless it is named."""
    run = ("run", photos("kermit"), "--project", tmp_path / "p", "--matcher", "gpu", "--until", "import")
    without_card = tiepoint(*run, "--features", "orb", **ENVIRONMENT)
    without_device = with_a_card(tmp_path, *run, "--features", "orb", environment={})
    with_sift = tiepoint(*run)

    for refused, reason in (
        (without_card, "no graphics card that can compute"),
        (without_device, "none of its OpenCL drivers offers a GPU"),
        (with_sift, "--matcher gpu is for ORB features, not rootsift; add --features orb"),
    ):
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert reason in refused.stderr
    assert not (tmp_path / "p").exists()


@needs_pocl
def test_matching_on_the_gpu_stays_within_the_reservation_of_one_pair(tmp_path: Path) -> None:
    """Driver and kernels are part of the warm child; pairs come one after the other."""
    features = FeatureParameters(extractor="orb")
    parameters = ProjectParameters(features=features, execution=ExecutionParameters(matcher="gpu"))
    scene = build_scene(tmp_path, images=3, points=MOST_FEATURES, parameters=parameters)
    pairs = [sorted(pair) for pair in pairwise(scene.contents)]
    payloads = [GpuMatchPayload(left=left, right=right, features=features) for left, right in pairs]
    estimate = KINDS[0].estimate

    peak = peak_bytes("tasks.gpu_matching", estimate, payloads, 1, tmp_path, **ENVIRONMENT)

    assert 1 << 20 < peak <= estimate.memory_bytes(1)
