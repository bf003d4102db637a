"""Tests of listing cards where udev fails; mock devices are in tests/integration/test_gpu_devices.py."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from governor.drm import list_cards


def test_without_pyudev_cards_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not installed outside Linux."""
    monkeypatch.setitem(sys.modules, "pyudev", None)

    with pytest.raises(ImportError):
        list_cards()


def test_a_card_that_goes_away_meanwhile_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers know two errors, not those of a library."""

    class GoneError(LookupError):
        """What pyudev raises for a device that is not there any more."""

    def list_devices(**_: Any) -> list[Any]:
        raise GoneError("card0")

    pyudev = SimpleNamespace(
        DeviceNotFoundError=GoneError, Context=lambda: SimpleNamespace(list_devices=list_devices)
    )
    monkeypatch.setitem(sys.modules, "pyudev", pyudev)

    with pytest.raises(OSError, match="card0"):
        list_cards()
