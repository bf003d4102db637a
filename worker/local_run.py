"""Runs one project on this machine: an embedded server, one governed worker, a watcher.

Server and worker are subprocesses of the main thread and die with it. Does
not cover how progress and results are shown (:mod:`worker.display`).
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.store import Project, Store
from tasks.store.publication import plain_store_errors
from worker import tether
from worker.bounds import find_bounds
from worker.embedded import EmbeddedServer, embedded_server
from worker.machine import check_room
from worker.memory_kills import KillCounts, MemoryKills
from worker.node import check_partition
from worker.project_queue import ProjectQueue, QueueError
from worker.project_state import ProjectState
from worker.settings import ProfileName, Settings, WrongSettingError
from worker.store_wait import PATIENCE_SECONDS, StorePatience

_POLL_SECONDS = 0.1
_WARM_STOP_SECONDS = 10.0
_MOST_IMPORT_ROOTS = 256
_NO_QUEUE_YET = "redis+socket:///still-to-be-made"
_REFUSED = 2
"""How a worker exits that refuses to start; its last line says why."""

Watch = Callable[[ProjectState, str], None]
"""Is told the live state, and what the node waits for, about ten times a second."""


class RunError(Exception):
    """A local run could not be finished; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How a local run may use this machine."""

    until: str = "model"
    cpus: int | None = None
    memory_bytes: int | None = None
    profile: ProfileName = "interactive"
    durations: Path | None = None
    """File that is told how long each batch took; None = none is."""


def run_locally(store: Store, project: Project, options: LocalOptions, watch: Watch) -> ProjectState:
    """Run a project, new or half done, to its end; returns the last live state.

    Raises:
        RunError: server or worker ended, planning failed, or the store was away for too long.
        ServerError: no server could be started.
        WrongSettingError: a setting makes no sense, or another worker has the machine.
    """
    work = Work(
        store=store,
        projects=[project],
        folders={Path(source.path).parent for source in project.sources},
        log_path=project.path / "worker.log",
        go_on=f"finish the project with: tiepoint resume {shlex.quote(str(store.root))}",
    )
    (state,) = run_in_turn(work, options, watch)
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one worker is to do: projects of one store."""

    store: Store
    projects: Iterable[Project]
    """Each is asked for when it is its turn."""
    folders: set[Path]
    """They hold the photos, besides the store."""
    log_path: Path
    go_on: str
    """What to do where it cannot be finished."""


def run_in_turn(work: Work, options: LocalOptions, watch: Watch) -> list[ProjectState]:
    """Run projects by one worker, each when the one before has ended; returns their last states.

    Raises: as :func:`run_locally`.
    """
    check_machine(options)
    with embedded_server() as server:
        settings = _settings(server.broker_url, work.store, work.folders, options)
        client, patience = ProjectQueue(settings.redis_url), StorePatience()
        ended: list[str] = []
        try:
            with governed_worker(settings, work.log_path) as worker:
                for project in work.projects:
                    client.start(project.id, until=options.until)
                    for state in _states_to_the_end(client, project.id, work.log_path):
                        waits_for = client.waits_for(settings.name)
                        watch(state, waits_for)
                        _check_store(patience, state, waits_for, work.go_on)
                        _check_processes(server, worker, work.go_on)
                    ended.append(project.id)
            # The worker has ended: what it measured last is there now.
            return [client.state(project_id) for project_id in ended]
        except QueueError as error:
            raise RunError(_lost_server(server, work.go_on, error)) from error
        finally:
            client.close()


def _lost_server(server: EmbeddedServer, go_on: str, error: QueueError) -> str:
    ended = server.how_it_ended()
    what = f"the embedded server ended ({ended})" if ended else f"the embedded server fails: {error}"
    return f"{what}; {go_on}"


def check_machine(options: LocalOptions) -> None:
    """Check that a run could have its part of this machine, before anything is made for it.

    Raises:
        WrongSettingError: it could not; the text says who has it, or what is too small.
    """
    settings = part_of_machine(options, broker_url=_NO_QUEUE_YET)
    check_partition(settings)
    check_room(settings)


def _settings(broker_url: str, store: Store, folders: set[Path], options: LocalOptions) -> Settings:
    return part_of_machine(
        options,
        broker_url=broker_url,
        store=store.root.resolve(),
        import_roots=_import_roots(folders),
        durations=options.durations,
    )


def part_of_machine(options: LocalOptions, **more: Any) -> Settings:
    """Return the settings of the worker of a run: its part of this machine, and what more is told."""
    return Settings.checked(
        cpus=options.cpus,
        memory_bytes=options.memory_bytes,
        profile=options.profile,
        single_node=True,
        **more,
    )


def _import_roots(folders: set[Path]) -> tuple[Path, ...]:
    """Return the folders that hold the photos, those within another left out.

    Photos that are links may lie far apart: their common folder could be the
    whole disk. A very large number is joined all the same, for the worker gets
    them in a variable of its environment.
    """
    outermost = {folder for folder in folders if folders.isdisjoint(folder.parents)}
    if len(outermost) > _MOST_IMPORT_ROOTS:
        return (Path(os.path.commonpath(outermost)),)
    return tuple(sorted(outermost))


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedWorker:
    """The worker's process, and what it has written since its start."""

    process: "subprocess.Popen[bytes]"
    log_path: Path
    log_start: int
    kills: MemoryKills
    kills_before: KillCounts
    """When it was started."""

    def check(self, go_on: str) -> None:
        """Check that it has not ended; ``go_on`` says what to do where it has.

        Raises:
            RunError: it has ended.
            WrongSettingError: it has refused to start.
        """
        if self.process.poll() is None:
            return
        if reason := self.refusal():
            # Another has started since we looked for room.
            raise WrongSettingError(reason)
        ended = tether.how_it_ended(self.process.returncode)
        if self.is_perhaps_out_of_memory():
            raise RunError(
                f"the worker ended ({ended}, out of memory suspected); "
                f"end other programs or raise the memory limit, then {go_on}"
            )
        raise RunError(f"the worker ended ({ended}); {go_on}")

    def is_perhaps_out_of_memory(self) -> bool:
        """Tell whether it was killed, and the kernel has killed for want of memory since its start.

        It need not have been the worker whom the kernel took: a job may have been.
        """
        is_killed = self.process.poll() == -signal.SIGKILL
        return is_killed and self.kills.counts().have_grown_since(self.kills_before)

    def refusal(self) -> str | None:
        """Return why it has refused to start; None where it has not."""
        if self.process.poll() != _REFUSED:
            return None
        with self.log_path.open("rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode(errors="replace").splitlines()
        sentences = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return sentences[-1] if sentences else None


@contextmanager
def governed_worker(settings: Settings, log_path: Path) -> Iterator[GovernedWorker]:
    """Run a governed worker for the time of the block; it ends before the block is left."""
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "WARNING"]
    command += ["--without-mingle", "--without-gossip", "--without-heartbeat"]
    with plain_store_errors(log_path):
        log_file = log_path.open("ab")
    with log_file as log:
        log_start = log.tell()
        kills = MemoryKills.within(find_bounds().limits)
        kills_before = kills.counts()
        process = tether.start(command, environment=settings.child_environment(), output=log)
    try:
        yield GovernedWorker(
            process=process, log_path=log_path, log_start=log_start, kills=kills, kills_before=kills_before
        )
    except QueueError:
        # Without a server it would try to reconnect; there is nobody to give anything back to.
        process.kill()
        raise
    except BaseException:
        # Interrupted or failed: nobody waits for the running jobs.
        process.send_signal(signal.SIGQUIT)
        raise
    else:
        process.send_signal(signal.SIGTERM)
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_WARM_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _states_to_the_end(client: ProjectQueue, project_id: str, log_path: Path) -> Iterator[ProjectState]:
    while True:
        state = client.state(project_id)
        yield state
        if state.state == "done":
            return
        if state.failure is not None:
            cause, cure = state.failure.cause.rstrip("."), state.failure.cure
            raise RunError(f"planning failed: {cause}. {cure} (log: {log_path})")
        time.sleep(_POLL_SECONDS)


def _check_store(patience: StorePatience, state: ProjectState, waits_for: str, go_on: str) -> None:
    if patience.is_over(state, waits_for):
        raise RunError(f"waited {PATIENCE_SECONDS:.0f} s for {waits_for}, then {go_on}")


def _check_processes(server: EmbeddedServer, worker: GovernedWorker, go_on: str) -> None:
    # The server first: a worker that has lost it may end, too.
    if server.how_it_ended() is not None:
        raise QueueError("it has ended")
    worker.check(go_on)
