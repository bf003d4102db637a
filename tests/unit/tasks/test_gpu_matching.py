"""The kind that matches on the GPU publishes what the other one does, and goes on without the GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from governor.governor import Governor
from governor.model import DecisionReason, Estimate, Gpu, Grant
from tasks import gpu_matching, gpu_matching_kernel
from tasks.gpu_matching import KINDS, run_gpu_matching
from tasks.kind import Done, NotReady, Outcome
from tasks.matching import run_matching
from tasks.opencl import Neighbours, OpenClError
from tasks.pair_jobs import GpuMatchPayload, match_job, matches_key, pair_item
from tasks.parameters import ExecutionParameters, FeatureParameters, ProjectParameters
from tests.opencl_device import needs_pocl, run_on_device
from tests.unit.governor.builders import GIB, MIB, a_dedicated_gpu, a_policy, a_profile, a_snapshot, a_uma_gpu
from tests.unit.tasks.scene_store import SceneStore, build_scene

[KIND] = KINDS
ORB = FeatureParameters(extractor="orb")
ON_GPU = ProjectParameters(features=ORB, execution=ExecutionParameters(matcher="gpu"))
GRANT = Grant(batch=1, cpu_threads=1, memory_bytes=10 * MIB, gpu_slots=1, io_slots=1)


def a_scene(root: Path, parameters: ProjectParameters = ON_GPU, images: int = 2) -> SceneStore:
    """Build a project whose images see the same points."""
    return build_scene(root, images=images, parameters=parameters)


def payload_of(scene: SceneStore, *pair: int) -> GpuMatchPayload:
    """Return a pair's payload under the project's parameters."""
    left, right = scene.pair(*pair)
    return GpuMatchPayload(left=left, right=right, features=ORB, project=scene.project.id)


def stored_sha256(scene: SceneStore, payload: GpuMatchPayload) -> str:
    """Return the checksum of a pair's published matches."""
    return scene.store.sha256(matches_key(payload.left, payload.right, payload.features, payload.matching))


def run(scene: SceneStore, *payloads: GpuMatchPayload) -> list[Outcome]:
    """Run one batch on the GPU."""
    return list(run_gpu_matching(payloads, GRANT, scene.store))


def on_cpu(root: Path) -> str:
    """Return the checksum of what ``matcher.run`` publishes for the first pair."""
    scene = a_scene(root, ProjectParameters(features=ORB))
    payload = payload_of(scene)
    list(run_matching([payload], GRANT, scene.store))
    return stored_sha256(scene, payload)


_RUN = """
import json, sys
from pathlib import Path
from governor.model import Grant
from tasks.gpu_matching import run_gpu_matching
from tasks.pair_jobs import GpuMatchPayload
from tasks.store import Store

payload = GpuMatchPayload.model_validate_json(sys.argv[2])
grant = Grant(batch=1, cpu_threads=1, memory_bytes=10 << 20, gpu_slots=1, io_slots=1)
[done] = run_gpu_matching([payload], grant, Store(Path(sys.argv[1])))
print(json.dumps([done.recorded_items, *(job.item for job in done.follow_ups)]))
"""


@needs_pocl
def test_the_published_file_is_that_of_the_other_kind(tmp_path: Path) -> None:
    """Name and bytes; that the device has found it is told by no warning."""
    scene = a_scene(tmp_path / "gpu")
    payload = payload_of(scene)
    done = run_on_device(_RUN, tmp_path / "gpu", payload.model_dump_json())

    assert done == [1, pair_item(*scene.pair())]
    assert stored_sha256(scene, payload) == on_cpu(tmp_path / "cpu")


def failing(message: str) -> Callable[..., Neighbours]:
    """Build a device that is lost."""

    def fail(*_: object) -> Neighbours:
        raise OpenClError(message)

    return fail


def test_a_device_that_is_lost_is_replaced_by_the_cpu_for_the_rest_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Same bytes, told once."""
    monkeypatch.setattr(gpu_matching_kernel, "two_nearest", failing("CL_DEVICE_NOT_AVAILABLE"))
    monkeypatch.setattr(gpu_matching, "opencl", no_switch)
    scene = a_scene(tmp_path / "gpu", images=3)
    outcomes = run(scene, payload_of(scene), payload_of(scene, 1, 2))

    assert [isinstance(outcome, Done) for outcome in outcomes] == [True, True]
    assert stored_sha256(scene, payload_of(scene)) == on_cpu(tmp_path / "cpu")
    assert caplog.messages == ["the GPU failed, the batch goes on on the CPU: CL_DEVICE_NOT_AVAILABLE"]


class no_switch:  # noqa: N801 - stands for a function
    """Stands for OpenCL that is switched on."""

    def __enter__(self) -> None:
        """Change nothing."""

    def __exit__(self, *_: object) -> None:
        """Change nothing."""


def test_a_process_without_a_device_matches_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Warming up says so, too, and does not fail."""
    monkeypatch.setattr(gpu_matching, "opencl", failing("there is no OpenCL driver"))
    scene = a_scene(tmp_path / "gpu")
    KIND.warm_up()
    run(scene, payload_of(scene))

    assert stored_sha256(scene, payload_of(scene)) == on_cpu(tmp_path / "cpu")
    assert [message.endswith("there is no OpenCL driver") for message in caplog.messages] == [True, True]


def test_a_missing_feature_set_is_made_first(tmp_path: Path) -> None:
    """As for the other kind."""
    scene = build_scene(tmp_path, images=2, parameters=ON_GPU, with_features=False)

    assert [type(outcome) for outcome in run(scene, payload_of(scene))] == [NotReady]


@pytest.mark.parametrize("extractor", ["sift", "rootsift"])
def test_only_orb_is_taken(extractor: str) -> None:
    """Of a job, and of a project."""
    features = FeatureParameters.model_validate({"extractor": extractor})

    with pytest.raises(ValidationError, match="only ORB features are matched on a GPU"):
        GpuMatchPayload(left="0" * 64, right="1" * 64, features=features)
    with pytest.raises(ValidationError, match="only ORB features are matched on a GPU"):
        ProjectParameters(features=features, execution=ExecutionParameters(matcher="gpu"))


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [(ON_GPU, "matcher.run.gpu"), (ProjectParameters(features=ORB), "matcher.run")],
    ids=["gpu", "cpu"],
)
def test_a_projects_parameters_decide_which_kind_its_pairs_are_planned_for(
    tmp_path: Path, parameters: ProjectParameters, kind: str
) -> None:
    """The stage and the item are the same."""
    scene = a_scene(tmp_path, parameters)
    job = match_job(scene.project, *scene.pair())

    assert (job.kind, job.stage, job.item) == (kind, "match", pair_item(*scene.pair()))
    assert job.estimate is None


def test_a_project_may_be_worked_on_in_another_way_from_now_on(tmp_path: Path) -> None:
    """The same photos and parameters, but for how they are worked on."""
    scene = a_scene(tmp_path, ProjectParameters(features=ORB))
    scene.project.create(ON_GPU, scene.project.sources)

    assert scene.project.parameters == ON_GPU
    assert scene.store.project(scene.project.id).parameters == ON_GPU


# -- What it is charged ------------------------------------------------------------------


def governor_with(gpu: Gpu) -> Governor:
    """Build the governor of an idle node with a card."""
    policy = a_policy(gpu_slots=1)
    return Governor(a_profile(gpu=gpu), policy, now_ns=lambda: 0, capture=a_snapshot)


@pytest.mark.parametrize(
    ("gpu", "memory_bytes", "gpu_memory_bytes"),
    [(a_uma_gpu(), 80 * MIB + 655_360, 0), (a_dedicated_gpu(), 80 * MIB, 655_360)],
    ids=["in-the-RAM", "with-its-own-memory"],
)
def test_a_card_in_the_ram_has_its_bytes_debited_there(
    gpu: Gpu, memory_bytes: int, gpu_memory_bytes: int
) -> None:
    """Once; and one thread, whatever is free."""
    governor = governor_with(gpu)
    snapshot = a_snapshot(gpu_memory_available_bytes=2 * GIB)
    _, reservation = governor.reserve(snapshot, KIND.estimate, KIND.name)
    reserved = governor.availability().reserved

    assert reservation is not None
    assert (reserved.memory_bytes, reserved.gpu_memory_bytes) == (memory_bytes, gpu_memory_bytes)
    assert (reserved.cpu_threads, reserved.gpu_slots, reserved.io_slots) == (1, 1, 1)


def test_pairs_of_one_node_are_matched_on_its_gpu_one_batch_after_the_other() -> None:
    """There is one slot."""
    governor = governor_with(a_uma_gpu())
    governor.reserve(a_snapshot(), KIND.estimate, KIND.name)
    decision, reservation = governor.reserve(a_snapshot(), KIND.estimate, KIND.name)

    assert reservation is None
    assert decision.reason is DecisionReason.SLOTS_BUSY


def test_the_estimate_is_the_frozen_one() -> None:
    """10 MiB a pair, one thread, one slot with 640 KiB."""
    assert KIND.powers_of_two
    assert KIND.estimate == Estimate(
        memory_per_item_bytes=10_485_760,
        gpu_memory_fixed_bytes=655_360,
        max_batch=8,
        cpu_threads=1,
        gpu_slots=1,
        io_slots=1,
    )


# -- Who loads OpenCL --------------------------------------------------------------------

_LOAD = """
import json
from pathlib import Path
import numpy
from tasks.catalog import load_kinds
from tasks.keypoints import cv2
from tasks.store import Store
from worker.batch import BatchRunner

def is_loaded():
    return "libOpenCL" in Path("/proc/self/maps").read_text()

kinds = load_kinds()
BatchRunner(kinds, Store(Path("nowhere")))
gpu = kinds.pop("matcher.run.gpu")
for kind in kinds.values():
    kind.warm_up()
noise = numpy.random.default_rng(0).integers(0, 256, (300, 300), numpy.uint8)
for extractor in (cv2.ORB_create(), cv2.SIFT_create()):
    extractor.detectAndCompute(noise, None)
by_others = is_loaded()
gpu.warm_up()
print(json.dumps([by_others, is_loaded()]))
"""


@needs_pocl
def test_only_the_kind_that_needs_it_loads_opencl() -> None:
    """In a node's child: not the import of all kinds, nor another kind's warming up, nor features."""
    assert run_on_device(_LOAD) == [False, True]
