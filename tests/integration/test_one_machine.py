"""Workers that share one machine: what does not fit is refused, what fits can be told apart."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.parameters import ProjectParameters
from tasks.store import Source, Store
from tests.integration.conftest import DEADLINE_SECONDS, REPOSITORY, Cluster
from worker import keys, local_run
from worker.local_run import LocalOptions, run_locally
from worker.machine import take_place
from worker.settings import Settings, WrongSettingError

CELERY = ["-m", "celery", "-A", "worker.app", "worker"]
OURS = ["-m", "worker.start", "worker"]


@pytest.fixture
def machine(cluster: Cluster) -> Path:
    """Return the lock folder of a machine."""
    return cluster.folder / "machine"


def start_refused(
    cluster: Cluster, machine: Path, *command: str, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run a worker that ends by itself; fail where it does not."""
    environment = {f"TIEPOINT_{name.upper()}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-P", *command],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "TIEPOINT_BROKER_URL": cluster.broker_url,
            "TIEPOINT_STORE": str(cluster.folder / "store"),
            "TIEPOINT_LOCK_FOLDER": str(machine),
            **environment,
        },
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def the_command(cluster: Cluster) -> list[str]:
    """Return `tiepoint worker` as a user types it."""
    folders = ["--broker", cluster.broker_url, "--store", str(cluster.folder / "store")]
    return ["-m", "worker.cli", "worker", *folders]


def test_a_second_worker_is_refused_whatever_starts_it(cluster: Cluster, machine: Path) -> None:
    """Before it has asked the queue for anything; and no longer once the first has been killed."""
    first = cluster.start_worker("first", lock_folder=machine)
    ended = [
        start_refused(cluster, machine, *CELERY),
        start_refused(cluster, machine, *CELERY, broker_url="redis://127.0.0.1:1/0"),
        start_refused(cluster, machine, *OURS),
        start_refused(cluster, machine, *the_command(cluster)),
    ]
    first.stop(signal.SIGKILL)

    assert [refused.returncode for refused in ended] == [2, 2, 2, 2]
    assert {refused.stderr.splitlines()[-1].partition(" (")[0] for refused in ended} == {
        "error: this machine"
    }
    assert all("already has worker `first` (all of it)" in refused.stderr for refused in ended)
    assert all("with --memory and --cpus, e.g. --memory " in refused.stderr for refused in ended)
    cluster.start_worker("first", lock_folder=machine)


@pytest.mark.parametrize("command", [CELERY, ["-m", "worker.cli", "worker"]], ids=["celery", "tiepoint"])
@pytest.mark.usefixtures("machine")
def test_a_worker_whose_name_is_anothers_on_another_machine_is_refused(
    cluster: Cluster, command: list[str]
) -> None:
    """Two machines may be called the same; the first goes on, and keeps its entry in the registry."""
    first = cluster.start_worker("one")
    command = [sys.executable, *command]
    second = cluster.start_worker("one", command=command, lock_folder=cluster.folder / "another machine")

    assert second.process.wait(DEADLINE_SECONDS) == 2
    assert "error: a worker called `one` already serves this queue from another machine" in second.log
    assert "Traceback" not in second.log
    assert cluster.server.exists(keys.node("one")) == 1
    assert first.process.poll() is None


def test_a_local_run_is_refused_beside_a_worker(cluster: Cluster, machine: Path) -> None:
    """It brings a worker of its own, which would use the same memory."""
    (cluster.folder / "photos").mkdir()
    (cluster.folder / "photos" / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    cluster.start_worker("first", lock_folder=machine)
    run = [
        "-m",
        "worker.cli",
        "run",
        str(cluster.folder / "photos"),
        "--project",
        str(cluster.folder / "new"),
    ]
    refused = start_refused(cluster, machine, *run)

    assert refused.returncode == 2
    assert "already has worker `first` (all of it)" in refused.stderr


def test_a_demo_is_refused_before_it_renders_anything(cluster: Cluster, machine: Path) -> None:
    """Nobody waits for a flight that cannot be reconstructed."""
    cluster.start_worker("first", lock_folder=machine)
    refused = start_refused(
        cluster, machine, "-m", "worker.cli", "demo", "--project", str(cluster.folder / "new")
    )

    assert refused.returncode == 2
    assert "already has worker `first` (all of it)" in refused.stderr
    assert not (cluster.folder / "new").exists()


def test_of_two_runs_that_start_at_once_the_second_says_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found room, and then one has taken it; an earlier refusal in the log is not this one."""
    monkeypatch.setenv("TIEPOINT_LOCK_FOLDER", str(tmp_path / "machine"))
    store = Store(tmp_path / "store")
    store.create()
    project = store.project("main")
    project.create(ProjectParameters(), [Source(name="a.jpg", path="/photos/a.jpg")])
    (project.path / "worker.log").write_text("error: of yesterday\n")
    check, places = local_run.check_machine, []

    def check_and_come_second(options: LocalOptions) -> None:
        check(options)
        places.append(take_place(Settings(broker_url="redis://elsewhere", name="faster")))

    monkeypatch.setattr(local_run, "check_machine", check_and_come_second)
    with pytest.raises(WrongSettingError, match=r"^this machine .* already has worker `faster`"):
        run_locally(store, project, LocalOptions(profile="dedicated"), lambda *_: None)
    os.close(places[0].descriptor)
