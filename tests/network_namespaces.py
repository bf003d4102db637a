"""Holds a network of a test's own: hosts that are network namespaces, on one bridge, that can be unplugged.

``with network_or_skip() as network: host = network.add_host("a")``. The bridge
is in a namespace as well, the hub, so nothing here touches the machine's own
network. Unplugged means that packets vanish, as with a pulled cable: neither
end is told. Needs root and iproute2. Does not cover machines' other parts: the
hosts share files, memory and clock.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

_BRIDGE = "bridge"
_HUB_ADDRESS = "10.77.0.1"


class NoNetworkError(Exception):
    """No network namespace can be made here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host: a namespace with one cable to the bridge."""

    namespace: str
    address: str
    cable: str
    """The cable's end at the hub."""
    hub: str

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """Start a command on this host, with all that it will start; ``options`` are Popen's."""
        # `ip netns exec` would hide the cgroups as well: it mounts /sys anew.
        namespace = f"--net=/run/netns/{self.namespace}"
        return subprocess.Popen([_program("nsenter"), namespace, *command], **options)

    def unplug(self) -> None:
        """Let all packets to and from this host vanish."""
        _ip("-n", self.hub, "link", "set", self.cable, "nomaster")

    def plug_in(self) -> None:
        """Let packets pass again."""
        _ip("-n", self.hub, "link", "set", self.cable, "master", _BRIDGE)


class Network:
    """The hub with its bridge, which is a host as well: the one that the others reach when plugged in."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = count(2)
        self.hub = Host(namespace=f"{prefix}-hub", address=_HUB_ADDRESS, cable="", hub=f"{prefix}-hub")

    def make_hub(self) -> None:
        """Make the bridge in a namespace of its own."""
        hub = self.hub.namespace
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{_HUB_ADDRESS}/24", "dev", _BRIDGE)
        for device in ("lo", _BRIDGE):
            _ip("-n", hub, "link", "set", device, "up")

    def add_host(self, name: str) -> Host:
        """Make a host, plugged in."""
        hub = self.hub.namespace
        number = next(self._numbers)
        host = Host(
            namespace=f"{self._prefix}-{name}", address=f"10.77.0.{number}", cable=f"cable{number}", hub=hub
        )
        _ip("netns", "add", host.namespace)
        _ip(
            "-n",
            hub,
            "link",
            "add",
            host.cable,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            host.namespace,
        )
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", host.namespace, "link", "set", device, "up")
        _ip("-n", hub, "link", "set", host.cable, "up")
        host.plug_in()
        return host

    def remove(self) -> None:
        """Remove every namespace, and with them the cables."""
        listed = _ip("netns", "list").split()
        for namespace in [name for name in listed if name.startswith(self._prefix)]:
            _ip("netns", "delete", namespace)


@contextmanager
def network() -> Iterator[Network]:
    """Make a network for the time of the block.

    Raises:
        NoNetworkError: none can be made here.
    """
    # Names of devices have at most 15 characters, those of namespaces are seen by the whole machine.
    network = Network(f"tiepoint{uuid4().hex[:6]}")
    try:
        network.make_hub()
        yield network
    finally:
        network.remove()


@contextmanager
def network_or_skip() -> Iterator[Network]:
    """Do as :func:`network`; where none can be made, skip the test with the reason."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network())
        except NoNetworkError as error:
            pytest.skip(str(error))
        yield made


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NoNetworkError(f"no network namespaces: the program {name} is not installed")
    return found


def _ip(*arguments: str) -> str:
    """Run one command of iproute2 and return what it prints.

    Raises:
        NoNetworkError: it was refused.
    """
    done = subprocess.run([_program("ip"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNetworkError(f"no network namespaces: ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
