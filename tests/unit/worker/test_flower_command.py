"""Flower is open to this machine alone, unless users are named; a password is never shown."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from worker import cli
from worker.flower_command import check_address, is_loopback, read_users
from worker.settings import Settings, WrongSettingError

VARIABLE = "TIEPOINT_FLOWER_USERS"


@pytest.fixture(autouse=True)
def _no_users_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port that somebody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "is_inside"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("localhost", True),
        ("126.255.255.255", False),
        ("128.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - refused
        ("::", False),
        ("", False),
        ("nas.example", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(address: str, is_inside: bool) -> None:  # noqa: FBT001 - a table
    """A name other than localhost may lead anywhere."""
    assert is_loopback(address) is is_inside


def test_an_open_flower_is_kept_on_this_machine() -> None:
    """The sentence names the cure."""
    check_address("127.0.0.1", [])
    check_address("0.0.0.0", ["ann:secret"])  # noqa: S104 - with a password
    with pytest.raises(
        WrongSettingError, match=r"0\.0\.0\.0 can be reached.*--user-file.*TIEPOINT_FLOWER_USERS"
    ):
        check_address("0.0.0.0", [])  # noqa: S104 - refused


def test_users_come_from_the_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file wins."""
    monkeypatch.setenv(VARIABLE, "ann:secret")
    path = tmp_path / "users"
    path.write_text("bob:a:b,c\n\n eve:x \n")

    assert read_users(None) == ["ann:secret"]
    assert read_users(path) == ["bob:a:b,c", "eve:x"]


def test_a_file_from_windows_is_read(tmp_path: Path) -> None:
    """Its editors begin with a byte order mark and end lines in their own way."""
    path = tmp_path / "users"
    path.write_bytes(b"\xef\xbb\xbfann:x\r\nbob:y\r\n")

    assert read_users(path) == ["ann:x", "bob:y"]


def test_more_users_than_flower_can_be_told_are_refused(tmp_path: Path) -> None:
    """The system would not start it."""
    path = tmp_path / "users"
    path.write_text("ann:" + "x" * 65_532)

    assert len(read_users(path)[0]) == 65_536
    path.write_text("ann:" + "x" * 65_533)
    with pytest.raises(WrongSettingError, match="more than 65536 characters"):
        read_users(path)


@pytest.mark.parametrize("entry", ["hunter2", ":hunter2", "ann:", "ann:hünter2", "ann:hu\x07nter2"])
def test_a_wrong_user_is_refused_without_showing_the_password(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors end up in logs."""
    monkeypatch.setenv(VARIABLE, f"bob:fine\n{entry}")
    with pytest.raises(WrongSettingError, match=f"user 2 of {VARIABLE}") as raised:
        read_users(None)

    assert "nter2" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"ann:\0x"])
def test_a_file_without_users_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """A missing secret must not open the door."""
    path = tmp_path / "users"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(WrongSettingError, match=str(path)):
        read_users(path)


def test_a_port_in_use_is_told_in_one_sentence(taken_port: int) -> None:
    """Flower itself would end with a traceback."""
    done = CliRunner().invoke(cli.app, ["flower", "--port", str(taken_port)])

    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1, port {taken_port}: address already in use" in done.stderr


def test_the_settings_do_not_show_the_brokers_password() -> None:
    """Celery shows them to whoever inspects a worker, and so does Flower."""
    shown = repr(Settings(broker_url="redis://:hunter2@127.0.0.1/0"))

    assert "hunter2" not in shown
    assert "memory_bytes" in shown
