"""Reads compose.yaml as a compose implementation does: variables filled in, anchors and merges resolved."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # podman-compose brings it, without types

REPOSITORY = Path(__file__).resolve().parents[1]
COMPOSE_FILE = REPOSITORY / "compose.yaml"
VALUES = {
    "REDIS_PASSWORD": "queue4secret",
    "FLOWER_PASSWORD": "page4secret",
    "PHOTOS": "/somewhere/photos",
}
"""What must be set."""


def read_config(folder: Path, values: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Let podman-compose read the file; with ``--dry-run`` it needs no podman.

    In a folder of its own, where no ``.env`` of whoever runs the tests adds anything.
    """
    shutil.copy(COMPOSE_FILE, folder)
    program = str(Path(sys.executable).with_name("podman-compose"))
    return subprocess.run(
        [program, "--dry-run", "config"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **values},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def read_services(folder: Path, **values: str) -> dict[str, dict[str, Any]]:
    """Return the services by name, with these variables besides those that must be set."""
    done = read_config(folder, VALUES | values)
    assert done.returncode == 0, done.stderr
    services: dict[str, dict[str, Any]] = yaml.safe_load(done.stdout)["services"]
    return services
