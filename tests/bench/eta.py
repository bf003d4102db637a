"""Measures how far off the time is that a project is said to need, on two workers of which one is slow.

``python -m tests.bench.eta [SET] [--runs 3] [--json]``; a set is a folder
below ``$TIEPOINT_PHOTOS``. Two workers have one thread each; a CPU cgroup
gives the second a third of a processor (v1 or v2; needs root). The time is
taken once a quarter of the matching jobs is done, and compared with when the
project really was done. The exit code is 1 where the median of the runs is
off by more than a quarter. docs/planning.md holds what came out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from uuid import uuid4

from tasks.outlook import PARTNERS
from tests.conftest import LOCK_FOLDER, photos_root
from tests.external_server import external_server
from tests.waiting import wait_until
from worker.client import Client
from worker.eta import eta_seconds, shipped_reference
from worker.project_state import ProjectState

_ALLOWED_ERROR = 0.25
_WAIT_SECONDS = 60.0
_PERIOD_US, _THIRD_US = 99_000, 33_000
_TIEPOINT = (sys.executable, "-P", "-m", "worker.cli")
_JOIN_AND_RUN = 'echo $$ > "$0" && exec "$@"'
_WORKER = ("--memory", "4GiB", "--cpus", "1", "--profile", "dedicated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was said of one project, and what came true."""

    told_seconds: float
    """How long it was said to need still, after a quarter of its matching jobs..."""
    true_seconds: float
    """...and how long it needed from there."""
    before_seconds: float
    """From its start to there."""

    @property
    def error(self) -> float:
        """Return by what part of the true time it was wrong; above 0: too long."""
        return self.told_seconds / self.true_seconds - 1


@contextmanager
def third_of_a_processor() -> Iterator[Path]:
    """Make a cgroup that may use a third of one processor; yields the file that processes join it by."""
    v1 = Path("/sys/fs/cgroup/cpu")
    folder = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"tiepoint-eta-{uuid4().hex[:8]}"
    folder.mkdir()
    try:
        if v1.is_dir():
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(_THIRD_US))
        else:
            (folder / "cpu.max").write_text(f"{_THIRD_US} {_PERIOD_US}")
        yield folder / "cgroup.procs"
    finally:
        wait_until(
            lambda: not (folder / "cgroup.procs").read_text(),
            "the slow worker's processes are gone",
            deadline_seconds=_WAIT_SECONDS,
        )
        folder.rmdir()


def run_once(photos: Path) -> Run:
    """Run a project on two workers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiepoint-bench-")))
        broker_url = stack.enter_context(external_server(folder))
        slow = stack.enter_context(third_of_a_processor())
        client = stack.enter_context(Client(broker_url, folder / "store"))
        client.store.create()
        for name, prefix in (("fast", []), ("slow", ["sh", "-c", _JOIN_AND_RUN, str(slow)])):
            where = ["--broker", broker_url, "--store", str(client.store.root), "--import-root", str(photos)]
            stack.enter_context(_worker(folder, name, [*prefix, *_TIEPOINT, "worker", *where, *_WORKER]))
        wait_until(lambda: len(client.nodes()) == 2, "both workers are alive", deadline_seconds=_WAIT_SECONDS)
        started = time.monotonic()
        project = client.submit(photos, name="survey")
        return _watched(client, project, started)


def _watched(client: Client, project: str, started: float) -> Run:
    told, told_at = None, 0.0
    for state in client.watch(project, poll_seconds=0.1):
        if told is None and _is_a_quarter_matched(state):
            told, told_at = eta_seconds(state, shipped_reference(), client.nodes()), time.monotonic()
    if told is None or state.state != "done":
        raise RuntimeError(f"the project is {state.state}, and nobody knew how long it would take")
    return Run(told_seconds=told, true_seconds=time.monotonic() - told_at, before_seconds=told_at - started)


def _is_a_quarter_matched(state: ProjectState) -> bool:
    match, pairs = state.stages.get("match"), state.stages.get("pairs")
    if match is None or pairs is None:
        return False
    foreseen = match.planned + pairs.open * state.ahead[PARTNERS]
    return match.done + match.failed >= foreseen / 4


@contextmanager
def _worker(folder: Path, name: str, command: Sequence[str]) -> Iterator[None]:
    environment = {**os.environ, LOCK_FOLDER: str(folder / "machine")}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*command, "--name", name], env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line for each run or one JSON object; the exit code tells whether it was near."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.eta", description=__doc__)
    parser.add_argument("set", nargs="?", default="brighton_beach")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    runs = []
    for number in range(options.runs):
        runs.append(run_once(photos_root() / options.set / "images"))
        one = runs[-1]
        print(  # noqa: T201
            f"run {number + 1}: after {one.before_seconds:.1f} s told {one.told_seconds:.1f} s, "
            f"true {one.true_seconds:.1f} s, {one.error:+.0%}",
            file=sys.stderr,
        )
    error = median(abs(run.error) for run in runs)
    if options.as_json:
        report = {
            "set": options.set,
            "median_error": round(error, 3),
            "errors": [round(run.error, 3) for run in runs],
        }
        print(json.dumps(report))  # noqa: T201
    else:
        print(f"{options.set}: median error {error:.0%} (at most {_ALLOWED_ERROR:.0%} wanted)")  # noqa: T201
    return int(error > _ALLOWED_ERROR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
