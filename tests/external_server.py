"""Runs a Redis-compatible server on a port of the loopback, as one that a cluster brings along."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from worker import tether
from worker.connections import plain_client
from worker.embedded import server_program

_START_SECONDS = 20.0


@contextmanager
def external_server(folder: Path) -> Iterator[str]:
    """Run a server that keeps its log in a folder; its URL for the time of the block."""
    port = _free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    with (folder / "server.log").open("wb") as log:
        process = tether.start([server_program(), *options], output=log)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_it_answers(url)
        yield url
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_answers(url: str) -> None:
    """Wait until a server answers.

    Raises:
        redis.ConnectionError: it does not within 20 s.
    """
    client = plain_client(url)
    deadline = time.monotonic() + _START_SECONDS
    try:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return
    finally:
        client.close()
