"""Runs a stock Celery client in a process that has Celery and Redis' client, and no Tiepoint.

Links just their packages into a folder, and starts Python without any other.
"""

import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

_CLIENT = """
import json, sys
sys.path.append(sys.argv[1])
for name in ("governor", "tasks", "worker"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(f"{name} can be imported")
from celery import Celery
with Celery(broker=sys.argv[2]) as app:
    kind, arguments = sys.argv[3], json.loads(sys.argv[4])
    print(app.send_task(kind, kwargs=arguments, queue=kind).id)
"""


def send(broker_url: str, kind: str, arguments: str, packages: Path) -> str:
    """Send one job whose arguments are JSON; return its id."""
    _link_packages(packages)
    # -I: no current folder, no user's packages; -S: not those of this environment either.
    command = [sys.executable, "-I", "-S", "-c", _CLIENT, str(packages), broker_url, kind, arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=packages)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def _link_packages(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # What `pip install "celery[redis]"` brings.
    for package in set().union(*map(_with_all_it_needs, ("celery", "redis", "packaging"))):
        found = distribution(package)
        for name in _top_level(found):
            link = folder / name
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(name))).resolve())


def _with_all_it_needs(package: str) -> set[str]:
    """Return a distribution's name and those of all that it requires without extras."""
    seen: set[str] = set()
    waiting = [package]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            required = distribution(name).requires or []
            waiting += [_name(text) for text in required if ";" not in text]
    return seen


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return match[0] if match else requirement


def _top_level(found: Distribution) -> set[str]:
    """Return the packages and modules of a distribution, and its metadata."""
    parts = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
    return {part for part in parts if not part.startswith("__") and part != "bin"}
