"""A local run derives its worker's settings from the project and the options, and says how a worker ended."""

import re
import signal
from pathlib import Path

import pytest

from tasks.parameters import ProjectParameters
from tasks.store import Project, Source, Store
from worker import local_run, tether
from worker.local_run import (
    GovernedWorker,
    LocalOptions,
    RunError,
    _check_processes,
    _check_store,
    _settings,
    _states_to_the_end,
    run_locally,
)
from worker.memory_kills import KillCounts, MemoryKills
from worker.project_state import PlanningFailure, ProjectState
from worker.settings import WrongSettingError
from worker.store_wait import StorePatience

BROKER_URL = "redis+socket:///tmp/redis.sock"


def a_project(root: Path, *paths: str) -> tuple[Store, Project]:
    """Create a project of these photos."""
    store = Store(root)
    store.create()
    project = store.project("main")
    project.create(ProjectParameters(), [Source(name=str(n), path=path) for n, path in enumerate(paths)])
    return store, project


@pytest.mark.parametrize(
    ("paths", "roots"),
    [
        (("/photos/a.jpg", "/photos/b.jpg"), ["/photos"]),
        (("/photos/a.jpg", "/photos/below/b.jpg"), ["/photos"]),
        (("/photos/left/a.jpg", "/disk/right/b.jpg"), ["/disk/right", "/photos/left"]),
        (tuple(f"/photos/{number}/a.jpg" for number in range(257)), ["/photos"]),
    ],
)
def test_the_worker_may_read_the_folders_that_hold_the_photos(
    tmp_path: Path, paths: tuple[str, ...], roots: list[str]
) -> None:
    """And nothing beside or above them."""
    folders = {Path(path).parent for path in paths}
    settings = _settings(BROKER_URL, Store(tmp_path), folders, LocalOptions())

    assert settings.import_roots == tuple(map(Path, roots))


def test_a_project_without_photos_opens_no_folder(tmp_path: Path) -> None:
    """There is no common path of nothing."""
    assert _settings(BROKER_URL, Store(tmp_path), set(), LocalOptions()).import_roots == ()


def test_the_options_reach_the_worker(tmp_path: Path) -> None:
    """And it knows that no bigger node will come."""
    options = LocalOptions(cpus=2, memory_bytes=2**30, profile="dedicated")
    settings = _settings(BROKER_URL, Store(tmp_path), {Path("/photos")}, options)

    assert (settings.cpus, settings.memory_bytes, settings.profile) == (2, 2**30, "dedicated")
    assert settings.single_node
    assert settings.store == tmp_path.resolve()


def test_a_part_that_is_too_small_is_told_before_a_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like everything that the machine has no room for."""
    monkeypatch.setattr(local_run, "embedded_server", lambda: pytest.fail("a server was started"))
    options = LocalOptions(memory_bytes=2**20, profile="dedicated")

    with pytest.raises(WrongSettingError, match="raise --memory"):
        run_locally(*a_project(tmp_path, "/photos/a.jpg"), options, lambda *_: None)


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(-signal.SIGKILL, "killed by SIGKILL"), (1, "exit status 1"), (0, "exit status 0")],
)
def test_the_end_of_a_worker_is_told_in_words(returncode: int, words: str) -> None:
    """A negative code is a signal."""
    assert tether.how_it_ended(returncode) == words


class EndedProcess:
    """A process that has ended."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode

    def poll(self) -> int:
        """Return how."""
        return self.returncode


GO_ON = "do this"


class LivingServer:
    """A server that has not ended."""

    def how_it_ended(self) -> None:
        """Tell that it has not."""


@pytest.mark.parametrize(
    ("returncode", "kills", "told"),
    [
        (-signal.SIGKILL, 1, "(killed by SIGKILL, out of memory suspected); end other programs or raise"),
        (-signal.SIGKILL, 0, "(killed by SIGKILL); do this"),
        (1, 1, "(exit status 1); do this"),
    ],
)
def test_memory_is_named_where_the_worker_was_killed_and_the_kernel_has_killed(
    tmp_path: Path, returncode: int, kills: int, told: str
) -> None:
    """Only to start it again would end the same way."""
    worker = GovernedWorker(
        process=EndedProcess(returncode),  # type: ignore[arg-type]
        log_path=tmp_path / "log",
        log_start=0,
        kills=MemoryKills(lambda: 3 + kills, lambda: None),
        kills_before=KillCounts(of_cgroup=3, of_machine=None),
    )

    with pytest.raises(RunError, match=re.escape(told)):
        _check_processes(LivingServer(), worker, GO_ON)  # type: ignore[arg-type]


class FailedPlan:
    """A client whose project could not be planned."""

    def state(self, _project_id: str) -> ProjectState:
        """Return the state."""
        failure = PlanningFailure(cause="The disk is full.", cure="Free some space.")
        return ProjectState(state="failed", failure=failure)


def test_a_failed_plan_is_told_in_a_sentence_with_its_cure(tmp_path: Path) -> None:
    """And where the details are."""
    log_path = tmp_path / "worker.log"

    with pytest.raises(RunError, match=r"planning failed: The disk is full\. Free some space\. \(log: .*\)"):
        list(_states_to_the_end(FailedPlan(), "main", log_path))  # type: ignore[arg-type]


def test_a_store_that_is_away_for_too_long_ends_the_run_with_cause_and_cure() -> None:
    """No photo is left out for it."""
    times = iter((0.0, 0.0, 59.0, 60.0, 60.0))
    patience, state = StorePatience(lambda: next(times)), ProjectState(state="running")
    waits_for = "the store: the disk is full (0 bytes free of 20.0 MiB); free space on its disk"
    for _ in range(2):
        _check_store(patience, state, waits_for, GO_ON)

    told = f"waited 60 s for {waits_for}, then do this"
    with pytest.raises(RunError, match=re.escape(told)):
        _check_store(patience, state, waits_for, GO_ON)
