"""Runs `tiepoint flower` as a user does, and asks it over HTTP."""

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USER = "ann:open-sesame"
_START_SECONDS = 60.0
_REQUEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What an HTTP request was answered."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """Return the JSON value of the body."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Flower:
    """One running Flower; ``user`` is NAME:PASSWORD, or "" where nobody needs a password."""

    process: "subprocess.Popen[bytes]"
    port: int
    user: str
    log_path: Path

    @property
    def url(self) -> str:
        """Return where its pages are."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def door(self) -> str:
        """Return the address by which a browser is let in, once."""
        return f"http://{self.user}@127.0.0.1:{self.port}" if self.user else self.url

    @property
    def log(self) -> str:
        """Return all that it has logged."""
        return self.log_path.read_text("utf-8", errors="replace")

    def ask(self, path: str, *, method: str = "GET", user: str | None = None) -> Answer:
        """Send a request as the user, or as somebody else."""
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 - http
        if credentials := self.user if user is None else user:
            request.add_header("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:  # noqa: S310
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read())

    def workers(self) -> dict[str, Any]:
        """Return what the workers say of themselves, asked anew."""
        workers: dict[str, Any] = self.ask("/api/workers?refresh=1").json
        return workers

    def rows(self) -> dict[str, Any]:
        """Return the lines of the page of workers, by the name of the node."""
        lines = self.ask("/workers?json=1").json["data"]
        return {line["hostname"].partition("@")[0]: line for line in lines}

    def tasks(self) -> dict[str, Any]:
        """Return the jobs that it remembers, by id."""
        tasks: dict[str, Any] = self.ask("/api/tasks").json
        return tasks

    def states(self, *ids: str) -> list[str | None]:
        """Return the states of jobs; None where it knows nothing of one."""
        tasks = self.tasks()
        return [tasks[name]["state"] if name in tasks else None for name in ids]

    def count(self, kind: str, state: str) -> int:
        """Return how many jobs of a kind it remembers in a state."""
        return sum((job["name"], job["state"]) == (kind, state) for job in self.tasks().values())

    def queue_lengths(self) -> dict[str, int]:
        """Return how many messages wait in each queue."""
        queues = self.ask("/api/queues/length").json["active_queues"]
        return {queue["name"]: queue["messages"] for queue in queues}


@contextmanager
def running_flower(
    broker_url: str, folder: Path, *options: str, user: str = USER, **environment: str
) -> Iterator[Flower]:
    """Run Flower for the time of the block."""
    port = free_port()
    if user:
        (folder / "users").write_text(user + "\n")
        options = ("--user-file", str(folder / "users"), *options)
    log_path = folder / f"flower-{port}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.cli", "flower", "--port", str(port), *options],
            env={**os.environ, "TIEPOINT_BROKER_URL": broker_url, **environment},
            stdout=log,
            stderr=log,
        )
    flower = Flower(process=process, port=port, user=user, log_path=log_path)
    try:
        _wait_until_it_answers(flower)
        yield flower
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(flower: Flower) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and flower.process.poll() is None:
        try:
            if flower.ask("/healthcheck").status == 200:
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"Flower does not answer:\n{flower.log}")
