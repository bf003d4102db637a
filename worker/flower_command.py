"""Holds the command ``flower``: checks who may look from where, then becomes Flower, Celery's monitor.

What Flower is told besides is in ``worker/flower_config.py``. Does not cover what
workers tell it (:mod:`worker.consumer`, :mod:`worker.claimed_item`).
"""

import errno
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.command_endings import plain_errors
from worker.settings import PREFIX, FlowerSettings, Settings, WrongSettingError

_CONFIG = Path(__file__).with_name("flower_config.py")
_USERS_VARIABLE = f"{PREFIX}FLOWER_USERS"
_MOST_CHARACTERS = 1 << 16
"""Linux passes a variable of twice as much to Flower, and refuses a longer one."""
_HOW_TO_NAME_USERS = f"--user-file, or the variable {_USERS_VARIABLE}"


def flower(
    broker: Annotated[
        str | None, typer.Option(help=f"URL of the queue (default: the variable {PREFIX}BROKER_URL).")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 5555,
    address: Annotated[
        str, typer.Option(help="Address to listen on; other machines reach it only where users are named.")
    ] = "127.0.0.1",
    user_file: Annotated[
        Path | None,
        typer.Option(help=f"File with NAME:PASSWORD lines (default: the variable {_USERS_VARIABLE})."),
    ] = None,
    max_tasks: Annotated[
        int, typer.Option(min=1, help="Jobs to remember; the oldest are forgotten.")
    ] = 10_000,
    purge_seconds: Annotated[
        int, typer.Option(min=1, help="Workers that are gone leave the page after this long.")
    ] = 600,
) -> None:
    """Show workers, jobs and queues in a browser (Celery's monitor Flower)."""
    with plain_errors():
        settings = Settings.checked(**({} if broker is None else {"broker_url": broker}))
        users = read_users(user_file)
        check_address(address, users)
        _check_port(address, port)
    command = [sys.executable, "-P", "-m", "worker.start", "flower", f"--conf={_CONFIG}"]
    command += [f"--address={address}", f"--port={port}"]
    command += [f"--max_tasks={max_tasks}", f"--purge_offline_workers={purge_seconds}"]
    # Not as an argument: every user of the machine can read those.
    environment = settings.child_environment() | {_USERS_VARIABLE: "\n".join(users)}
    os.execvpe(command[0], command, environment)  # noqa: S606 - our own command


def read_users(user_file: Path | None) -> list[str]:
    """Return the ``NAME:PASSWORD`` of all who may look: those of the file, else of the environment.

    Raises:
        WrongSettingError: the file cannot be read or is empty, or an entry is none.
    """
    values: dict[str, Any] = {}
    if user_file is not None:
        try:
            values["flower_users"] = user_file.read_text("utf-8-sig")  # Editors on Windows put a mark first.
        except (OSError, UnicodeDecodeError) as error:
            raise WrongSettingError(f"{user_file} cannot be read: {error}") from error
    users = FlowerSettings.checked(**values).users
    if user_file is not None and not users:
        raise WrongSettingError(f"{user_file} names nobody; it holds one NAME:PASSWORD per line")
    for number, user in enumerate(users, start=1):
        _check_user(user, f"user {number} of {user_file or _USERS_VARIABLE}")
    if sum(map(len, users)) > _MOST_CHARACTERS:
        raise WrongSettingError(f"{user_file or _USERS_VARIABLE} has more than {_MOST_CHARACTERS} characters")
    return users


def _check_user(user: str, which: str) -> None:
    """Check one entry; the sentence must not show the password."""
    name, _, password = user.partition(":")
    if not name or not password:
        raise WrongSettingError(f"{which} is not NAME:PASSWORD")
    if not (
        user.isascii() and user.isprintable()
    ):  # Flower compares with hmac.compare_digest, which takes nothing else.
        raise WrongSettingError(f"{which}: Flower takes only ASCII letters, digits and signs")


def check_address(address: str, users: list[str]) -> None:
    """Check that nobody from outside gets in without a password.

    Raises:
        WrongSettingError: other machines could reach an open Flower.
    """
    if users or is_loopback(address):
        return
    raise WrongSettingError(
        f"{address or 'an empty address'} can be reached from other machines, and nobody needs a password: "
        f"name who may look ({_HOW_TO_NAME_USERS}), or keep --address 127.0.0.1"
    )


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach an address; a host name may be anywhere."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _check_port(address: str, port: int) -> None:
    """Bind as Flower will, for a moment: Flower itself would end with a traceback."""
    try:
        places = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as probe:
                # A port whose last connections are still closing is free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family is socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _bind(probe, place, is_one_of_several=len(places) > 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WrongSettingError(
            f"cannot listen on {address}, port {port}: {reason}; name another with --port or --address"
        ) from error


def _bind(probe: socket.socket, place: Any, *, is_one_of_several: bool) -> None:
    try:
        probe.bind(place)
    except OSError as error:
        # `localhost` also stands for ::1, which many a container does not have; Flower does without.
        if not (is_one_of_several and error.errno == errno.EADDRNOTAVAIL):
            raise
