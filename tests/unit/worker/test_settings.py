"""Settings are validated at the start and reach every child process unchanged."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from worker.settings import PREFIX, Settings, WrongSettingError, name_of_host

EVERYTHING: dict[str, Any] = {
    "planning": {"margin_percent": 120, "margin_learning": {}, "profiles": "/store/it's here.json"},
    "durations": Path("/store/a b"),
    "broker_url": "redis+socket:///tmp/a%20folder/redis.sock",
    "store": Path("/data/my store"),
    "import_roots": (Path("/photos"), Path('/other "photos", 2')),
    "name": "node-1.lab",
    "memory_bytes": 2**40,
    "cpus": 3,
    "profile": "dedicated",
    "lease_seconds": 2.5,
    "single_node": True,
    "kind_modules": ("my.kinds", "tests.integration.noop_kinds"),
    "time_limits": {"matcher.run": (1.5, 2.0)},
    "lock_folder": Path("/run/lock/ours"),
}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def read_back(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Settings:
    """Return what a process reads that was started with these settings."""
    environment = settings.child_environment()
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Settings()


def settings_with(name: str, value: Any) -> Settings:
    """Return settings with one value that is not the default."""
    values: dict[str, Any] = {name: value}
    return Settings(**values)


@pytest.mark.parametrize("values", [EVERYTHING, {"name": "one"}], ids=["everything", "defaults"])
def test_settings_survive_the_environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    """Tuples, paths with quotes and blanks, numbers and truth values included."""
    settings = Settings(**values)

    assert read_back(monkeypatch, settings) == settings


@pytest.mark.parametrize("spelling", [str.upper, str.lower])
def test_what_is_not_set_does_not_come_back_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, spelling: Callable[[str], str]
) -> None:
    """Whatever this process was started with, every one of its children reads its settings."""
    for name, value in settings_with("name", "outer").to_environment().items():
        monkeypatch.setenv(spelling(name), value)
    monkeypatch.setenv(spelling(PREFIX + "CPUS"), "1")
    monkeypatch.setenv(spelling(PREFIX + "MEMORY_BYTES"), "1000")
    monkeypatch.setenv(spelling(PREFIX + "PHOTOS"), "/photos")
    settings = Settings(name="inner", cpus=None, memory_bytes=None)

    assert read_back(monkeypatch, settings) == settings
    assert os.environ[spelling(PREFIX + "PHOTOS")] == "/photos"


def test_everything_that_can_be_set_is_in_the_round_trip() -> None:
    """A new setting joins this test."""
    assert set(EVERYTHING) == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker_url", "amqp://host"),
        ("broker_url", "host:6379"),
        ("broker_url", "redis:/host"),
        ("broker_url", "REDIS://host"),
        ("broker_url", "redis://host:port"),
        ("broker_url", "redis://host:65536"),
        ("broker_url", "redis://:1#2@host"),
        ("name", ""),
        ("name", "a b"),
        ("name", "-a"),
        ("name", "a|b"),
        ("name", "a" * 65),
        ("memory_bytes", 0),
        ("cpus", 0),
        ("profile", "greedy"),
        ("lease_seconds", 0.19),
        ("lease_seconds", 600.1),
        ("kind_modules", 5),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    """Better at the start than in the middle of the night."""
    with pytest.raises(ValidationError, match=name):
        settings_with(name, value)


@pytest.mark.parametrize(
    "broker_url",
    [
        ":sesame@nas:6379",
        "sesame@nas",
        "redis:/:sesame@nas",
        "valkey://:open@sesame/or@not@nas",
        "redis://:open#sesame@nas",
        "redis://ann:sesame?@nas/0",
        "redis://:ses[ame@nas",
        "redis://:sesame'@nas:port",
    ],
)
def test_no_password_is_told_however_wrong_the_url_is(broker_url: str) -> None:
    """A sign of the password may look like the URL's end."""
    with pytest.raises(WrongSettingError, match="@nas") as refused:
        Settings.checked(broker_url=broker_url)

    assert "ses" not in str(refused.value).removeprefix("TIEPOINT")
    assert "open" not in str(refused.value)


def test_a_wrong_broker_is_told_without_its_password() -> None:
    """Messages end up in logs."""
    with pytest.raises(WrongSettingError) as refused:
        Settings.checked(broker_url="valkey://:sesame@nas:6379/0")

    assert str(refused.value) == (
        "TIEPOINT_BROKER_URL: 'valkey://:...@nas:6379/0': "
        "the broker is a redis://, rediss:// or redis+socket:// URL"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "a" * 64),
        ("memory_bytes", 1),
        ("cpus", 1),
        ("lease_seconds", 0.2),
        ("lease_seconds", 600.0),
        ("broker_url", "redis://:1%232@host:65535/0"),
        ("broker_url", "rediss://host?ssl_cert_reqs=required"),
    ],
)
def test_the_bounds_themselves_are_accepted(name: str, value: Any) -> None:
    """The pairs of the refusals above."""
    assert getattr(settings_with(name, value), name) == value


@pytest.mark.parametrize(
    ("broker_url", "redis_url"),
    [
        ("redis://:secret@host:1/2", "redis://:secret@host:1/2"),
        ("rediss://host", "rediss://host?ssl_cert_reqs=required"),
        ("redis+socket:///tmp/redis.sock", "unix:///tmp/redis.sock"),
    ],
)
def test_the_broker_is_named_in_the_spelling_of_redis_py_too(broker_url: str, redis_url: str) -> None:
    """Celery and redis-py spell a socket differently."""
    assert Settings(broker_url=broker_url).redis_url == redis_url


def test_settings_cannot_be_changed() -> None:
    """What was validated stays valid."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().cpus = 5


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("lab-7.example.org", "lab-7.example.org"),
        ("a" * 64, "a" * 64),
        ("a" * 65, "a" * 64),
        ("a" * 70, "a" * 64),
        ("Anna's_PC (2)", "Anna-s_PC--2-"),
        ("büro", "b-ro"),
        ("-.lab", "lab"),
        ("." + "a" * 64, "a" * 64),
        ("", "node"),
        ("...", "node"),
        ("日本", "node"),
    ],
)
def test_any_host_name_makes_a_valid_node_name(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    """Nobody has to rename a machine."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    assert name_of_host(host) == name
    assert Settings().name == name


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CPUS", "many"), ("NAME", "a b"), ("PROFILE", "greedy"), ("BROKER_URL", "amqp://host")],
)
def test_a_wrong_setting_is_told_with_its_variable_and_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """One sentence instead of a validation report."""
    monkeypatch.setenv(PREFIX + variable, value)

    with pytest.raises(WrongSettingError, match=f"^{PREFIX}{variable}: '{value}': .*$"):
        Settings.checked()


def test_a_list_that_is_no_json_is_told_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are easily written as in a PATH."""
    monkeypatch.setenv(PREFIX + "IMPORT_ROOTS", "/photos:/more")

    with pytest.raises(WrongSettingError, match=r'import_roots.*lists are JSON, like \["/photos"\]'):
        Settings.checked()
