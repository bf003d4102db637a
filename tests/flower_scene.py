"""Holds the scene that Flower is looked at in: two nodes, attic and cellar, one project, one Flower."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery

from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Store
from tests import waiting
from tests.flower_process import Flower, free_port, running_flower
from worker.embedded import server_program

GIB = 1 << 30
REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = "photos"
FOREVER_SECONDS = 600.0
NOOP_KINDS = '["tests.integration.noop_kinds"]'
NODES = {"attic@lab": 4 * GIB, "cellar@lab": 2 * GIB}
"""Names as monitors show them, and how much memory each may use."""

wait_until = partial(waiting.wait_until, deadline_seconds=120.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs: Flower, and behind it a queue with two nodes that know a project."""

    flower: Flower
    broker_url: str

    def send(self, kind: str, **arguments: Any) -> str:
        """Send a job as a stock client does; return its id."""
        with Celery(broker=self.broker_url) as client:
            return str(client.send_task(kind, kwargs=arguments, queue=kind).id)

    def start_project(self) -> None:
        """Send the project's first job."""
        self.send("pipeline.expand", project=PROJECT)

    def hold_project(self, queue: str, before: str, count: int) -> list[str]:
        """Start the project, stop it with its jobs of a queue waiting, and both nodes busy otherwise.

        ``before`` is the kind that ends with so many jobs before those of the queue are there.
        Returns the ids of what the nodes are busy with.
        """
        self._press("cancel-consumer", queue)
        wait_until(lambda: not any(queue in self.queues_of(node) for node in NODES), f"{queue} is left")
        self.start_project()
        wait_until(lambda: self.flower.count(before, "SUCCESS") == count, f"{before} is through")
        busy = [self.send("noop", sleep_seconds=FOREVER_SECONDS) for _ in NODES]
        wait_until(lambda: self.flower.states(*busy) == ["STARTED"] * len(NODES), "both are busy")
        self._press("add-consumer", queue)
        wait_until(lambda: all(queue in self.queues_of(node) for node in NODES), f"{queue} is entered")
        return busy

    def _press(self, action: str, queue: str) -> None:
        for node in NODES:
            self.flower.ask(f"/api/worker/queue/{action}/{node}?queue={queue}", method="POST")

    def queues_of(self, node: str) -> set[str]:
        """Return the queues that a node takes jobs from."""
        return {queue["name"] for queue in self.flower.workers()[node]["active_queues"]}


@contextmanager
def two_nodes(folder: Path, photos: Path, *, kind_modules: str = NOOP_KINDS) -> Iterator[Scene]:
    """Run the scene for the time of the block; the project is in the store and has not begun."""
    store = Store(folder / "store")
    store.create()
    store.project(PROJECT).create(ProjectParameters(), find_photos(photos))
    with ExitStack() as stack:
        broker_url = stack.enter_context(_server(folder))
        flower = stack.enter_context(running_flower(broker_url, folder))
        for name, memory_bytes in NODES.items():
            node = name.partition("@")[0]
            environment = {
                "TIEPOINT_BROKER_URL": broker_url,
                "TIEPOINT_STORE": str(folder / "store"),
                "TIEPOINT_IMPORT_ROOTS": f'["{photos}"]',
                "TIEPOINT_NAME": node,
                "TIEPOINT_KIND_MODULES": kind_modules,
                "TIEPOINT_PROFILE": "dedicated",
                "TIEPOINT_CPUS": "1",
                "TIEPOINT_MEMORY_BYTES": str(memory_bytes),
                # Each stands for a machine of its own.
                "TIEPOINT_LOCK_FOLDER": str(folder / "machines" / node),
                "PYTHONPATH": str(REPOSITORY),
            }
            worker = [sys.executable, "-P", "-m", "celery", "-A", "worker.app", "worker", "--hostname", name]
            stack.enter_context(_running(worker, folder / f"{node}.log", environment))
        wait_until(lambda: set(flower.workers()) == set(NODES), "Flower has heard of both nodes")
        yield Scene(flower=flower, broker_url=broker_url)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with _running([server_program(), *options], folder / "server.log", {}):
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def _running(command: list[str], log_path: Path, environment: dict[str, str]) -> Iterator[None]:
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.kill()
        process.wait()
