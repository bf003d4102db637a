"""Measures the peak memory of one batch in a fresh process, as a node's child would show it.

Run as a program: ``python -m tests.unit.tasks.peak_memory KIND STORE GRANT PAYLOADS``
with JSON texts; prints the outcomes' names and the peak above the warm process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from governor.model import Grant
from tasks import features, import_images
from tasks.store import Store

CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one batch did in a fresh process."""

    outcomes: list[str]
    peak_bytes: int


def measure(kind: str, store: Store, grant: Grant, payloads: Sequence[Mapping[str, Any]]) -> Measured:
    """Run one batch in a fresh, warm process; skip where the kernel does not let a peak be reset."""
    if not os.access(CLEAR_REFS, os.W_OK):
        pytest.skip("this kernel has no writable /proc/self/clear_refs")
    roots = [str(root) for root in (store.root, *store.import_roots)]
    grant_fields = {"cpu_threads": grant.cpu_threads, "memory_bytes": grant.memory_bytes}
    arguments = [json.dumps(value) for value in (roots, grant_fields, list(payloads))]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.unit.tasks.peak_memory", kind, *arguments],
        cwd=_CHECKOUT,
        capture_output=True,
        check=True,
        text=True,
    )
    return Measured(**json.loads(answer.stdout))


def _run(kind_name: str, roots: str, grant: str, payloads: str) -> None:
    (kind,) = (kind for kind in (*import_images.KINDS, *features.KINDS) if kind.name == kind_name)
    root, *import_roots = (Path(path) for path in json.loads(roots))
    store = Store(root, import_roots)
    batch = [kind.payload.model_validate(fields) for fields in json.loads(payloads)]
    kind.warm_up()
    CLEAR_REFS.write_text(_RESET_PEAK)
    warm_bytes = _status_bytes("VmRSS")
    outcomes = list(kind.run(batch, Grant(batch=len(batch), **json.loads(grant)), store))
    peak_bytes = max(0, _status_bytes("VmHWM") - warm_bytes)
    names = [type(outcome).__name__ for outcome in outcomes]
    sys.stdout.write(json.dumps({"outcomes": names, "peak_bytes": peak_bytes}))


def _status_bytes(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    _run(*sys.argv[1:])
