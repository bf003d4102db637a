"""Runs batches one after the other in one fresh process, through the code that a node's child runs them by.

As a module: the measuring side. As a script (``python -m``): the fresh process. The peaks are those that
the product itself measures (:mod:`worker.memory_meter`).
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from governor.model import Estimate, Grant
from tasks.catalog import load_kinds
from tasks.store import Store
from worker.batch import BatchRunner
from worker.child import Answer
from worker.frames import BatchRequest
from worker.memory_meter import private_bytes

CLEAR_REFS = Path("/proc/self/clear_refs")
_CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch to run, and the threads and the memory it is granted."""

    kind: str
    payloads: tuple[Mapping[str, Any], ...]
    threads: int = 1
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the child reports of one batch."""

    peak_bytes: int
    """0: within the noise of a batch that does nothing."""
    retained_bytes: int
    """What the process held more after this batch than before its first."""
    retire: bool
    seconds: float
    frames: tuple[dict[str, Any], ...]
    """The outcomes as they are sent to the main process, without the jobs that they push."""

    @property
    def actions(self) -> list[str]:
        """Return what became of each item."""
        return [frame["action"] for frame in self.frames]


def run_in_child(store: Store, batches: Sequence[Batch]) -> list[Measured]:
    """Run batches in one fresh process; skip where the kernel does not let a peak be reset.

    Raises:
        subprocess.CalledProcessError: the process died.
    """
    if not CLEAR_REFS.exists():
        pytest.skip("the peak of a process can be reset and read on Linux only")
    roots = [str(root) for root in (store.root, *store.import_roots)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps({"roots": roots, "batches": [asdict(batch) for batch in batches]}),
        env={"PYTHONPATH": str(_CHECKOUT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [Measured(**{**fields, "frames": tuple(fields["frames"])}) for fields in json.loads(done.stdout)]


def run_under(
    estimate: Estimate, kind: str, payloads: Sequence[Mapping[str, Any]], store: Store, threads: int = 1
) -> tuple[Measured, Estimate]:
    """Run one batch under an estimate, and again under the one that it asks for, as a node does.

    Returns the last run and the estimate it had.
    """
    memory_bytes = estimate.memory_bytes(len(payloads))
    batch = Batch(kind=kind, payloads=tuple(payloads), threads=threads, memory_bytes=memory_bytes)
    (measured,) = run_in_child(store, [batch])
    if measured.actions != ["needs"] or measured.peak_bytes > memory_bytes:
        return measured, estimate
    return run_under(Estimate.from_header(measured.frames[0]["estimate"]), kind, payloads, store, threads)


def _run(runner: BatchRunner, batch: Mapping[str, Any], first_bytes: int) -> Measured:
    payloads = tuple(batch["payloads"])
    grant = Grant(
        batch=len(payloads), cpu_threads=batch["threads"], memory_bytes=batch["memory_bytes"], io_slots=1
    )
    request = BatchRequest(
        batch_id="measured",
        kind=batch["kind"],
        payloads=payloads,
        places=(None,) * len(payloads),
        grant=grant,
    )
    started = time.monotonic()
    # A file, not a list: a child keeps nothing of what it has sent.
    with tempfile.TemporaryFile() as sent:
        answer = Answer(lambda line: _write(sent, line), request)
        report = runner.run(request, answer.outcome)
        seconds = time.monotonic() - started
        answer.report(report)
        sent.seek(0)
        frames = tuple(_frames_in(sent))
    return Measured(
        peak_bytes=report.peak_bytes,
        retained_bytes=private_bytes() - first_bytes,
        retire=report.retire,
        seconds=seconds,
        frames=frames,
    )


def _write(file: BinaryIO, line: bytes) -> None:
    file.write(line)


def _frames_in(sent: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the outcomes, without the jobs that follow from them."""
    for line in sent:
        frame = json.loads(line)
        if "outcome" in frame:
            yield {name: value for name, value in frame["outcome"].items() if name != "pushes"}


def _main() -> None:
    order = json.load(sys.stdin)
    root, *import_roots = (Path(path) for path in order["roots"])
    kinds = load_kinds()
    for batch in order["batches"]:
        kinds[batch["kind"]].warm_up()
    runner = BatchRunner(kinds, Store(root, import_roots))
    first_bytes = private_bytes()
    measured = [_run(runner, batch, first_bytes) for batch in order["batches"]]
    sys.stdout.write(json.dumps([asdict(each) for each in measured]))


if __name__ == "__main__":
    _main()
