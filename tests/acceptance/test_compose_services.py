"""The services of compose.yaml, started as plain processes: the very commands and variables, other places.

Instead of containers: a port for each service, folders for the volumes, the server of the
wheel for the image's, a node name for each replica's own host.
"""

import base64
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Store
from tests.acceptance.conftest import DEADLINE_SECONDS, wait_until
from tests.compose_services import VALUES, read_services
from tests.conftest import PhotoSet
from worker import keys
from worker.command_endings import EXIT_USAGE
from worker.connections import plain_client
from worker.embedded import server_program

PROGRAMS = {"valkey-server": server_program(), "tiepoint": str(Path(sys.executable).with_name("tiepoint"))}
WORKERS = ("attic", "cellar")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def seconds(text: str) -> float:
    """Read a duration of a compose file: 30s, 2m."""
    return float(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


@dataclass
class Composition:
    """The services, where they live here, and the processes that run now."""

    services: dict[str, dict[str, Any]]
    folder: Path
    photos: Path
    queue_port: int = field(default_factory=free_port)
    flower_port: int = field(default_factory=free_port)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Return what is the volume `store`."""
        return Store(self.folder / "store")

    @property
    def broker_url(self) -> str:
        """Return the queue's URL, with its password."""
        return f"redis://:{VALUES['REDIS_PASSWORD']}@127.0.0.1:{self.queue_port}/0"

    def here(self, text: str) -> str:
        """Return a word of the file with the places of this machine."""
        places = {
            "redis:6379": f"127.0.0.1:{self.queue_port}",
            "5555": str(self.flower_port),
            "/store": str(self.folder / "store"),
            "/machine": str(self.folder / "machine"),
            "/photos": str(self.photos),
        }
        for there, here in places.items():
            text = text.replace(there, here)
        return text

    def environment(self, service: str, **more: str) -> dict[str, str]:
        """Return the variables of a service; of this machine's only what any image has."""
        ours = {name: self.here(value) for name, value in self.services[service]["environment"].items()}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.folder), "HOSTNAME": socket.gethostname(), **ours, **more}

    def start(self, service: str, name: str, options: Sequence[str] = (), **more: str) -> None:
        """Start one container's process."""
        words: list[str] = self.services[service]["command"]
        program, *arguments = words if words[0] in PROGRAMS else ["tiepoint", *words]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [PROGRAMS[program], *map(self.here, arguments), *options],
                env=self.environment(service, **more),
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def start_queue(self) -> None:
        """Start the queue on its port and wait until it answers."""
        options = ("--port", str(self.queue_port), "--bind", "127.0.0.1", "--dir", str(self.folder / "queue"))
        self.start("redis", "redis", options)
        wait_until(self._answers, "the queue answers")

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.broker_url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def start_workers(self, *names: str) -> None:
        """Start replicas and wait until the queue knows them."""
        for name in names:
            self.start("worker", name, (), **self.of_replica(name))
        wait_until(lambda: all(map(self.is_known, names)), "they have their leases")

    def is_known(self, name: str) -> bool:
        """Tell whether a node has a lease."""
        with self.queue() as client:
            return any(f"{name}|" in str(lease) for lease in client.zrange(keys.LEASES, 0, -1))

    def of_replica(self, name: str) -> dict[str, str]:
        """Return what a container has by itself: a host of its own, whose name the node takes."""
        return {"TIEPOINT_NAME": name}

    def is_healthy(self, service: str, **more: str) -> bool:
        """Run a service's health check as it stands."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        text = words[0] if kind == "CMD-SHELL" else shlex.join(words)
        command = ["sh", "-c", self.here(text)]
        environment = self.environment(service, **more)
        return subprocess.run(command, env=environment, check=False, capture_output=True).returncode == 0

    def stop(self, service: str, *names: str) -> list[int]:
        """Stop processes as the engine does; return how they ended within the time they have."""
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        grace = seconds(self.services[service]["stop_grace_period"])
        return [self.processes.pop(name).wait(grace) for name in names]

    @contextmanager
    def queue(self) -> Iterator["redis.Redis"]:
        """Connect to the queue with the password."""
        with redis.Redis.from_url(self.broker_url) as client:
            yield client

    def run_project(self, name: str, until: str) -> None:
        """Put a project of the photos into the store and start it as any Celery client may."""
        project = self.store.project(name)
        # Other parameters than the other project's: features of these are not in the store yet.
        parameters = ProjectParameters(features=FeatureParameters(max_features=4096))
        project.create(parameters, find_photos(self.photos))
        with Celery(broker=self.broker_url) as client:
            client.send_task(
                "pipeline.expand", kwargs={"project": name, "until": until}, queue="pipeline.expand"
            )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Do what `docker compose run --rm worker` with these words does."""
        return subprocess.run(
            [PROGRAMS["tiepoint"], *map(self.here, words)],
            env=self.environment("worker"),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def live_state(self, project: str) -> dict[str, str]:
        """Return what the queue knows of a project."""
        with self.queue() as client:
            stored: Any = client.hgetall(keys.project(project))
        return {key.decode(): value.decode() for key, value in stored.items()}

    def count(self, project: str, field_name: str) -> int:
        """Return one of its counters."""
        return int(self.live_state(project).get(field_name, 0))

    def messages(self) -> tuple[int, int]:
        """Return how many messages wait in lists, and how many nodes hold."""
        with self.queue() as client:
            held = sum(int(client.hlen(key)) for key in client.scan_iter(f"{keys.INFLIGHT_PREFIX}*"))
            names = ("features.extract.rootsift", "pipeline.expand")
            waiting = sum(int(client.llen(key)) for name in names for key in keys.queue_lists(name))
        return waiting, held

    def get(self, path: str, *, password: str | None = None) -> int:
        """Ask Flower for a page; return the status."""
        token = base64.b64encode(f"tiepoint:{password}".encode()).decode()
        headers = {} if password is None else {"Authorization": f"Basic {token}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.flower_port, timeout=30)
        with closing(connection):
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory, photos: PhotoSet) -> Iterator[Composition]:
    """Return the services, all running: a queue, two workers, Flower."""
    folder = tmp_path_factory.mktemp("composed")
    for name in ("store", "machine", "queue", "file"):
        (folder / name).mkdir()
    services = read_services(folder / "file", WORKER_MEMORY="3g", WORKER_CPUS="1")
    composition = Composition(services=services, folder=folder, photos=photos("kermit"))
    composition.store.create()
    try:
        composition.start_queue()
        composition.start("flower", "flower")
        composition.start_workers(*WORKERS)
        wait_until(lambda: composition.is_healthy("flower"), "Flower is healthy")
        yield composition
    finally:
        for process in composition.processes.values():
            process.kill()
            process.wait()


def test_the_queue_wants_its_password_and_forgets_nothing(composed: Composition) -> None:
    """Append-only file on, nothing evicted, full before the container's memory is."""
    stranger = plain_client(f"redis://127.0.0.1:{composed.queue_port}/0")
    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with composed.queue() as client:
        said: Any = client.config_get("appendonly", "maxmemory-policy", "maxmemory")

    assert said == {"appendonly": "yes", "maxmemory-policy": "noeviction", "maxmemory": str(512 << 20)}
    assert list((composed.folder / "queue" / "appendonlydir").iterdir())


@pytest.mark.parametrize("path", ["/workers", "/api/workers", "/tasks", "/broker"])
def test_flower_shows_nothing_without_the_password(composed: Composition, path: str) -> None:
    """The page and the data behind it."""
    assert composed.get(path) == 401
    assert composed.get(path, password=VALUES["REDIS_PASSWORD"]) == 401
    assert composed.get(path, password=VALUES["FLOWER_PASSWORD"]) == 200


def test_each_replica_is_a_node_with_its_share(composed: Composition) -> None:
    """Distinct names, each with the memory of its container less the policy's reserve."""
    with composed.queue() as client:
        entries: dict[str, Any] = {name: client.hgetall(keys.node(name)) for name in WORKERS}

    assert {name: int(entry[b"budget_memory_bytes"]) for name, entry in entries.items()} == dict.fromkeys(
        WORKERS, (3 << 30) - (512 << 20)
    )
    assert {int(entry[b"budget_cpu_threads"]) for entry in entries.values()} == {1}


@pytest.mark.parametrize("name", WORKERS)
def test_a_replica_that_runs_is_healthy(composed: Composition, name: str) -> None:
    """It answers a ping; one that does not run has no health (see below)."""
    assert composed.is_healthy("worker", **composed.of_replica(name))


def test_a_project_runs(composed: Composition) -> None:
    """By the commands of docs/containers.md, from the folder of photos to an export."""
    submitted = composed.run("submit", "/photos", "--name", "church", "--watch", "--json")
    status = composed.run("status", "church", "--json")
    exported = composed.run("export", "church", "--out", "/store/church-colmap")

    assert submitted.returncode == 0, submitted.stderr
    assert json.loads(status.stdout)["images"] == {"imported": len(find_photos(composed.photos)), "failed": 0}
    assert exported.returncode == 0, exported.stderr
    assert (composed.folder / "store" / "church-colmap").is_dir()


def test_a_replica_that_does_not_fit_beside_the_others_does_not_start(composed: Composition) -> None:
    """They share the folder in which workers of a machine find each other."""
    composed.start("worker", "loft", ("--cpus", str(os.cpu_count())), **composed.of_replica("loft"))
    code = composed.processes.pop("loft").wait(DEADLINE_SECONDS)

    assert code == EXIT_USAGE
    assert "does not fit beside" in (composed.folder / "loft.log").read_text().replace("\n", " ")


def test_stopping_and_starting_again_goes_on_where_it_was(composed: Composition) -> None:
    """Workers finish what they run and hand back the rest; the queue comes back with all that waits."""
    images = len(find_photos(composed.photos))
    composed.run_project("again", "features")
    wait_until(lambda: composed.count("again", "features:done"), "one photo is done")
    codes = composed.stop("worker", *WORKERS)
    waiting, held = composed.messages()
    done = composed.count("again", "features:done")

    assert codes == [0, 0], [(composed.folder / f"{name}.log").read_text()[-2000:] for name in WORKERS]
    assert held == 0
    assert done + waiting >= images
    assert not composed.is_healthy("worker", **composed.of_replica(WORKERS[0]))

    assert composed.stop("redis", "redis") == [0]
    composed.start_queue()
    assert composed.messages() == (waiting, 0)
    composed.start_workers(WORKERS[0])
    wait_until(lambda: composed.live_state("again").get("state") == "done", "the project is done")
    assert composed.count("again", "features:done") == images
    assert composed.count("again", "features:failed") == 0


def test_flower_ends_when_it_is_told_to(composed: Composition) -> None:
    """Within its time."""
    assert composed.stop("flower", "flower")[0] in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
