"""Runs one batch of a kind in a fresh process and measures how far its memory rises.

As a module: the measuring side. As a script (``python -m``): the fresh process.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

from governor.model import Estimate, Grant
from tasks.kind import Done, Payload
from tasks.store import Store
from worker.batch import outcome_frame
from worker.frames import encode

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_bytes(
    module: str,
    estimate: Estimate,
    payloads: Sequence[Payload],
    threads: int,
    root: Path,
    **environment: str,
) -> int:
    """Return the measured peak above the warm process's baseline.

    ``module`` holds the kind as its first; ``estimate`` is granted.
    ``environment`` is what the process has besides the bare minimum.
    """
    if not CLEAR_REFS.exists():
        pytest.skip("the peak of a process can be reset and read on Linux only")
    order = {
        "module": module,
        "root": str(root),
        "payloads": [payload.model_dump(mode="json") for payload in payloads],
        "threads": threads,
        "memory_bytes": estimate.memory_bytes(len(payloads)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps(order),
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def _status_bytes(name: str) -> int:
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _main() -> None:
    order = json.load(sys.stdin)
    kind = import_module(order["module"]).KINDS[0]
    kind.warm_up()
    store = Store(Path(order["root"]))
    payloads = [kind.payload.model_validate(payload) for payload in order["payloads"]]
    grant = Grant(
        batch=len(payloads), cpu_threads=order["threads"], memory_bytes=order["memory_bytes"], io_slots=1
    )
    CLEAR_REFS.write_text("5")  # resets the peak to what is resident now
    baseline = _status_bytes("VmHWM")
    # One by one, as a child sends them: it does not hold a batch's outcomes, but each becomes a message.
    for outcome in kind.run(payloads, grant, store):
        encode({"outcome": outcome_frame(outcome)})
        if not (isinstance(outcome, Done) and outcome.recorded_items):
            sys.exit(f"the batch did not do its work: {outcome}")
    peak = _status_bytes("VmHWM")
    sys.stdout.write(str(peak - baseline))


if __name__ == "__main__":
    _main()
