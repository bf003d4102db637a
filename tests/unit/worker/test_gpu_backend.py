"""Whether a machine can match on its GPU is asked in another process, which may end as it likes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from governor.gpu import GpuFinding
from tasks.catalog import load_kinds
from tasks.errors import ProjectError
from tasks.parameters import ExecutionParameters, FeatureParameters, ProjectParameters
from tests.unit.governor.builders import a_uma_gpu
from worker import gpu_backend
from worker.command_options import Features, Matcher, project_parameters
from worker.gpu_backend import GpuBackend, ask, check_this_machine, find_backend
from worker.live_nodes import LiveNode, read_node
from worker.node import Node
from worker.settings import Settings, WrongSettingError
from worker.submission import check_matcher

ON_GPU = ProjectParameters(
    features=FeatureParameters(extractor="orb"), execution=ExecutionParameters(matcher="gpu")
)
A_DEVICE = GpuBackend(device="Radeon", driver_memory_bytes=150 << 20)
NO_DEVICE = GpuBackend(reason="there is no OpenCL driver")


def program(text: str) -> list[str]:
    """Return a command that runs a program."""
    return [sys.executable, "-c", text]


def test_a_device_that_answers_is_used() -> None:
    """By its name; its driver's memory is known."""
    answer = {"device": "Radeon", "reason": "", "driver_memory_bytes": 150 << 20}
    backend = ask(program(f"print({json.dumps(json.dumps(answer))})"))

    assert backend == A_DEVICE
    assert backend.is_usable


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            """print('{"device": "", "reason": "there is no OpenCL driver", "driver_memory_bytes": 0}')""",
            "there is no OpenCL driver",
        ),
        ("import os; os.abort()", "its OpenCL driver ends the process that asks it"),
        ("print('driver 1.2')", "its OpenCL driver ends the process that asks it"),
        ("print('[]')", "its OpenCL driver ends the process that asks it"),
    ],
    ids=["no-driver", "crash", "chatter", "no-object"],
)
def test_whatever_else_comes_of_asking_is_a_reason(text: str, reason: str) -> None:
    """A worker starts all the same."""
    assert ask(program(text)) == GpuBackend(reason=reason)


def test_a_driver_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while."""
    monkeypatch.setattr(gpu_backend, "_PATIENCE_SECONDS", 0.01)

    assert "did not answer" in ask(program("import time; time.sleep(60)")).reason


def test_without_a_card_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most machines have none, and OpenCL drivers are slow to load."""
    started: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: started.append(command))
    backend = find_backend(GpuFinding(gpu=None, note="the machine has no graphics card that can compute"))

    assert backend == GpuBackend(reason="the machine has no graphics card that can compute")
    assert started == []


@pytest.mark.parametrize(
    ("backend", "kinds"), [(A_DEVICE, ["matcher.run.gpu"]), (NO_DEVICE, [])], ids=["device", "none"]
)
def test_a_node_takes_what_is_matched_on_a_gpu_only_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: GpuBackend, kinds: list[str]
) -> None:
    """And everything else."""
    node = Node(Settings(store=tmp_path))
    monkeypatch.setattr(node, "gpu_backend", backend)
    others = [name for name in load_kinds() if name != "matcher.run.gpu"]

    assert [name for name, kind in node.kinds.items() if node.takes(kind)] == [
        name for name in load_kinds() if name in (*others, *kinds)
    ]


@pytest.mark.parametrize(("name", "driver_mib"), [("matcher.run", 0), ("matcher.run.gpu", 150)])
def test_a_batch_on_the_gpu_is_charged_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, driver_mib: int
) -> None:
    """The child loads it with its first such batch; nothing else of the estimate changes."""
    node = Node(Settings(store=tmp_path))
    monkeypatch.setattr(node, "gpu_backend", A_DEVICE)
    kind = node.kinds[name]
    charged = node.charged(kind, kind.estimate)

    assert charged.memory_fixed_bytes == kind.estimate.memory_fixed_bytes + (driver_mib << 20)
    assert replace(charged, memory_fixed_bytes=0) == replace(kind.estimate, memory_fixed_bytes=0)


def on_this_machine(monkeypatch: pytest.MonkeyPatch, backend: GpuBackend) -> None:
    """Let this machine have a card and such a backend."""
    monkeypatch.setattr(gpu_backend, "find_gpu", lambda _memory_bytes: GpuFinding(gpu=a_uma_gpu()))
    monkeypatch.setattr(gpu_backend, "find_backend", lambda _finding: backend)


def test_a_machine_that_cannot_refuses_such_a_project_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is matched on the CPU is none of its business."""
    on_this_machine(monkeypatch, NO_DEVICE)
    check_this_machine(ProjectParameters())

    with pytest.raises(WrongSettingError) as refused:
        check_this_machine(ON_GPU)
    assert str(refused.value) == (
        "this machine cannot match on a GPU: there is no OpenCL driver; "
        "install the OpenCL driver of its graphics card, or run again with --matcher cpu"
    )


def test_a_machine_that_can_takes_such_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word."""
    on_this_machine(monkeypatch, A_DEVICE)

    check_this_machine(ON_GPU)


def test_a_cluster_takes_such_a_project_where_one_node_can_or_none_is_alive() -> None:
    """A worker may come later."""
    able = read_node("able", {"gpu_matching": "1"})
    plain = [LiveNode(name="plain"), read_node("old", {}), read_node("off", {"gpu_matching": "0"})]
    check_matcher([], ON_GPU)
    check_matcher([*plain, able], ON_GPU)
    check_matcher(plain, ProjectParameters())

    with pytest.raises(ProjectError, match=r"\(alive: off, old, plain\): start a worker .* --matcher cpu"):
        check_matcher(plain, ON_GPU)


@pytest.mark.parametrize("features", [Features.SIFT, Features.ROOTSIFT])
def test_the_option_is_for_orb(features: Features) -> None:
    """The sentence names both ways out."""
    with pytest.raises(WrongSettingError, match=f"not {features}; add --features orb, or leave it out"):
        project_parameters(features, "auto", max_image_size_px=3200, max_features=8192, matcher=Matcher.GPU)


@pytest.mark.parametrize("matcher", Matcher)
def test_the_option_becomes_the_projects_parameter(matcher: Matcher) -> None:
    """And no other one."""
    parameters = project_parameters(
        Features.ORB, "auto", max_image_size_px=3200, max_features=8192, matcher=matcher
    )

    assert parameters.execution.matcher == matcher
    assert parameters.model_copy(update={"execution": ExecutionParameters()}) == ProjectParameters(
        features=FeatureParameters(extractor="orb")
    )
