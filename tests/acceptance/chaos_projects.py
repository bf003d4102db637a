"""Takes projects through a chaos run: submits them by a client that is killed, compares what they come to.

Each must come to the tracks of a run that nobody has disturbed, byte for byte.
"""

import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ProjectError, StoreError
from tasks.summary import summarise
from tests.acceptance.chaos_scene import Scene
from tests.acceptance.conftest import TIEPOINT, tiepoint
from worker import tether
from worker.project_queue import ProjectQueue, QueueError

_POLL_SECONDS = 0.5
_CLIENT_LIVES_SECONDS = (0.2, 4.0)
_MOST_KILLED_CLIENTS = 2
_MOST_REPAIRS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A project, and what it comes to when nobody disturbs it."""

    name: str
    photos: Path
    features: str
    tracks_sha256: str


def undisturbed(photos: Path, features: Sequence[str], folder: Path) -> list[Expected]:
    """Run each project alone, with `tiepoint run`; they differ in their features."""
    return [_undisturbed(photos, one, folder / f"undisturbed-{photos.parent.name}-{one}") for one in features]


def _undisturbed(photos: Path, features: str, folder: Path) -> Expected:
    done = tiepoint(
        *("run", photos, "--project", folder, "--features", features, "--until", "tracks"),
        *("--profile", "dedicated", "--json"),
        TIEPOINT_LOCK_FOLDER=str(folder.parent / "machines" / "undisturbed"),
    )
    if done.returncode != 0:
        raise RuntimeError(f"the undisturbed run of {photos} failed: {done.stderr[-1000:]}")
    name = f"{photos.parent.name}-{features}"
    return Expected(name=name, photos=photos, features=features, tracks_sha256=done.summary["tracks_sha256"])


class ProjectRun:
    """One project on its way; ``step`` is called again and again until it is over."""

    def __init__(self, scene: Scene, expected: Expected, queue: ProjectQueue, seed: int) -> None:
        self.expected = expected
        self.is_over = False
        self.equal = False
        """Its tracks are those of the undisturbed run."""
        self.killed_clients = 0
        self._scene = scene
        self._queue = queue
        self._rng = random.Random(f"{seed}:{expected.name}")
        self._client: subprocess.Popen[bytes] | None = None
        self._client_ends_at = 0.0
        self._is_submitted = False
        self._next_at = 0.0
        self._repairs = 0

    def step(self) -> None:
        """Go on: submit, look how far it is, compare."""
        if time.monotonic() < self._next_at or self.is_over:
            return
        self._next_at = time.monotonic() + _POLL_SECONDS
        if self._is_submitted:
            self._look()
        elif self._client is None:
            self._submit()
        else:
            self._look_at_the_client(self._client)

    def _submit(self) -> None:
        where = ["--broker", self._scene.server.broker_url, "--store", str(self._scene.store.root)]
        what = ["--name", self.expected.name, "--features", self.expected.features, "--until", "tracks"]
        command = [*TIEPOINT, "submit", str(self.expected.photos), *what, *where]
        with (self._scene.folder / "submit.log").open("ab") as log:
            self._client = tether.start(command, output=log)
        lives_seconds = self._rng.uniform(*_CLIENT_LIVES_SECONDS)
        may_die = self.killed_clients < _MOST_KILLED_CLIENTS and not self._repairs
        self._client_ends_at = time.monotonic() + lives_seconds if may_die else float("inf")

    def _look_at_the_client(self, client: "subprocess.Popen[bytes]") -> None:
        if time.monotonic() > self._client_ends_at and client.poll() is None:
            client.kill()
            client.wait()
            self.killed_clients += 1
            self._scene.say(f"the client that submits {self.expected.name} is killed")
        if client.poll() is not None:
            self._is_submitted = client.returncode == 0
            self._client = None

    def _look(self) -> None:
        try:
            state = self._queue.state(self.expected.name).state
            if state == "failed":
                self._scene.complain(f"the project {self.expected.name} has failed")
            if state in {"done", "failed"}:
                self._compare()
        except (QueueError, StoreError, ProjectError):
            return  # What it stands on is away; later.

    def _compare(self) -> None:
        store = self._scene.store
        if not store.root.is_dir():
            return
        summary = summarise(store, store.project(self.expected.name))
        if summary["failures"]:
            told = json.dumps(summary["failures"])[:600]
            self._scene.complain(f"items of {self.expected.name} have failed: {told}")
        self.equal = summary["tracks_sha256"] == self.expected.tracks_sha256
        self._scene.say(f"{self.expected.name} is done, its tracks are {'equal' if self.equal else 'not'}")
        self.is_over = True

    def repair(self) -> None:
        """Submit it again if what it made was damaged afterwards, as `tiepoint resume` advises."""
        if self.is_over and self._repairs < _MOST_REPAIRS and not self._is_still_equal():
            self._repairs += 1
            self.is_over = self._is_submitted = self.equal = False

    def _is_still_equal(self) -> bool:
        try:
            store = self._scene.store
            now = summarise(store, store.project(self.expected.name))["tracks_sha256"]
        except StoreError:
            return False
        self.equal = now == self.expected.tracks_sha256
        return self.equal


class Projects:
    """The projects of a run, all at the same time."""

    def __init__(self, scene: Scene, expected: Sequence[Expected], queue: ProjectQueue) -> None:
        self.runs = [ProjectRun(scene, one, queue, scene.options.seed) for one in expected]

    def step(self) -> None:
        """Go on with each that is not over."""
        for run in self.runs:
            run.step()

    def are_over(self) -> bool:
        """Tell whether all are; what was damaged afterwards is repaired first."""
        for run in self.runs:
            run.repair()
        return all(run.is_over for run in self.runs)

    @property
    def verdict(self) -> str:
        """Return what the summary says of the tracks."""
        if not self.runs:
            return "none"
        return "equal" if all(run.equal for run in self.runs) else "DIFFERENT"


@contextmanager
def projects(scene: Scene, expected: Sequence[Expected]) -> Iterator[Projects]:
    """Hold the projects of a run, with a connection of their own."""
    queue = ProjectQueue(scene.server.redis_url)
    try:
        yield Projects(scene, expected, queue)
    finally:
        queue.close()
