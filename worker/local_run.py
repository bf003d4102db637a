"""Runs one project on this machine: an embedded server, one governed worker, a watcher.

Server and worker are subprocesses of the main thread and die with it. Does
not cover how progress and results are shown (:mod:`worker.display`).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.store import Project, Store
from worker import tether
from worker.client import Client, ProjectState
from worker.embedded import embedded_server
from worker.settings import ProfileName, Settings

_POLL_SECONDS = 0.1
_WARM_STOP_SECONDS = 10.0

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


def run_locally(store: Store, project: Project, options: LocalOptions, watch: Watch) -> ProjectState:
    """Run a project, new or half done, to its end; returns the last live state.

    Raises:
        RunError: the worker ended, or planning failed.
        ServerError: no server could be started.
    """
    with embedded_server() as broker_url:
        settings = _settings(broker_url, store, project, options)
        client = Client(settings.redis_url)
        try:
            with _worker(settings, project.path / "worker.log") as worker:
                client.start(project.id, until=options.until)
                _watch_to_the_end(client, project, settings, worker, watch)
            # The worker has ended: what it measured last is there now.
            return client.state(project.id)
        finally:
            client.close()


def _settings(broker_url: str, store: Store, project: Project, options: LocalOptions) -> Settings:
    roots = {str(Path(source.path).parent) for source in project.sources}
    return Settings(
        broker_url=broker_url,
        store=store.root.resolve(),
        import_roots=(Path(os.path.commonpath(roots)),) if roots else (),
        cpus=options.cpus,
        memory_bytes=options.memory_bytes,
        profile=options.profile,
        single_node=True,
    )


@contextmanager
def _worker(settings: Settings, log_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a governed worker for the time of the block; it ends before the block is left."""
    command = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "WARNING"]
    command += ["--without-mingle", "--without-gossip", "--without-heartbeat"]
    with log_path.open("ab") as log:
        process = tether.start(command, environment={**os.environ, **settings.to_environment()}, output=log)
    try:
        yield process
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


def _watch_to_the_end(
    client: Client, project: Project, settings: Settings, worker: "subprocess.Popen[bytes]", watch: Watch
) -> None:
    while True:
        state = client.state(project.id)
        watch(state, client.waits_for(settings.name))
        if state.state == "done":
            return
        if state.state == "failed":
            raise RunError(f"planning failed: {state.failure}; see {project.path / 'worker.log'}")
        if worker.poll() is not None:
            raise RunError(
                f"the worker ended ({_how_it_ended(worker.returncode)}); "
                f"finish the project with: tiepoint resume {project.path.parent.parent}"
            )
        time.sleep(_POLL_SECONDS)


def _how_it_ended(returncode: int) -> str:
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"exit status {returncode}"
