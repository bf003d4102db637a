"""The image has what the wheel has, installed as `make` installs it, and nothing from nowhere."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text("utf-8")).splitlines()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FULL_LOCK, IMAGE_LOCK = "requirements.lock", "requirements.runtime.lock"


def arguments(instruction: str) -> list[str]:
    """Return what follows an instruction, of each time it is used."""
    return [line.partition(" ")[2] for line in LINES if line.startswith(f"{instruction} ")]


def copied() -> list[str]:
    """Return what is copied out of the checkout."""
    return [
        source for line in arguments("COPY") if not line.startswith("--from") for source in line.split()[:-1]
    ]


def pins(lock: str) -> dict[str, str]:
    """Return each requirement with its version, without its condition, and its hashes."""
    blocks = re.split(r"^(?=[a-z])", (ROOT / lock).read_text("utf-8"), flags=re.MULTILINE)
    return {
        re.split(" [;\\\\]", block)[0]: " ".join(re.findall(r"sha256:[0-9a-f]{64}", block))
        for block in blocks
        if block
    }


def names(requirements: list[str]) -> set[str]:
    """Return the names of requirements."""
    return {re.split(r"[ <>=;\[]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def installs(text: str) -> list[list[str]]:
    """Return the options and sources of each `pip install -r` and `--no-deps`, in order."""
    lines = re.findall(r"-m pip (install [^\n]*(?:-r|--no-deps)[^\n]*)", text)
    return [line.split() for line in lines]


@pytest.mark.parametrize("source", copied())
def test_what_is_copied_is_there_and_not_ignored(source: str) -> None:
    """A build fails late."""
    assert (ROOT / source).exists()
    assert f"!{source}" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def test_every_package_of_the_wheel_and_what_its_metadata_reads_is_copied() -> None:
    """The image installs from these files alone."""
    packages = {name.partition(".")[0] for name in PYPROJECT["tool"]["setuptools"]["packages"]}
    project = PYPROJECT["project"]

    assert set(copied()) == packages | {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        IMAGE_LOCK,
    }


def test_the_image_is_installed_as_make_installs() -> None:
    """Locked, with hashes, then ourselves without dependencies; only not editable, and without a cache."""
    places = {"/build/": "", "/build": ".", "--no-cache-dir": "", IMAGE_LOCK: FULL_LOCK}
    image = [
        [word for word in (places.get(word, word.removeprefix("/build/")) for word in line) if word]
        for line in installs("\n".join(LINES))
    ]
    image = [[FULL_LOCK if word == IMAGE_LOCK else word for word in line] for line in image]
    make = [
        [word for word in line if word != "--editable"]
        for line in installs((ROOT / "Makefile").read_text("utf-8"))
    ]

    assert image == make
    assert len(make) == 2
    assert all("--require-hashes" in line or "--no-deps" in line for line in make)


def test_the_images_lock_is_a_part_of_the_lock() -> None:
    """The same versions, the same hashes: what runs in a container is what is tested."""
    image, full = pins(IMAGE_LOCK), pins(FULL_LOCK)

    assert image.items() <= full.items()
    assert all(image.values())


def test_the_images_lock_holds_what_we_need_and_nothing_of_what_only_tests_need() -> None:
    """No compilers, linters and browsers in a worker."""
    locked = names(list(pins(IMAGE_LOCK)))
    project = PYPROJECT["project"]

    assert names(project["dependencies"]) <= locked
    assert not names(project["optional-dependencies"]["dev"]) & locked


def test_the_image_runs_as_nobody_special_under_a_supported_python() -> None:
    """By number, which orchestrators can check; one base for both stages."""
    [user] = arguments("USER")
    [base] = {line.split()[0] for line in arguments("FROM")}
    found = re.fullmatch(r"python:(\d+)\.(\d+)-slim-\w+", base)

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert found
    assert PYPROJECT["project"]["requires-python"] == f">={found[1]}.{found[2]}"
