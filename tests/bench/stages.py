"""Measures `tiepoint run` beside its own stages, called as plain functions on two processes.

``python -m tests.bench.stages [SET] [--rounds N] [--json]``; a set is a
folder below ``$TIEPOINT_PHOTOS``. The difference is what the queue, the
governor and the processes cost. Both sides run in turn in each round, and
must come to the same tracks. Both use two processes.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.bench.side import Side, SideError, run_side
from tests.conftest import photos_root

TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Both sides, one after the other."""

    tiepoint: Side
    stages: Side

    @property
    def ratio(self) -> float:
        """Return Tiepoint's time in parts of the plain stages' time."""
        return self.tiepoint.seconds / self.stages.seconds


def measure(photos: Path, rounds: int) -> list[Round]:
    """Return both sides of every round.

    Raises:
        SideError: a side hung or failed, or they came to different tracks.
    """
    return [_round(photos, tiepoint_first=number % 2 == 0) for number in range(rounds)]


def _round(photos: Path, *, tiepoint_first: bool) -> Round:
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as name:
        folder = Path(name)
        product = [sys.executable, "-P", "-m", "worker.cli", "run", str(photos), "--json"]
        product += ["--project", str(folder / "tiepoint"), "--profile", "dedicated", "--cpus", "2"]
        # Found in this checkout, not in an installed copy: without -P.
        plain = [sys.executable, "-m", "tests.bench.stages_alone", str(photos), str(folder / "stages")]
        commands = {"tiepoint": product, "stages": plain}
        order = sorted(commands, reverse=tiepoint_first)
        sides = {side: run_side(commands[side], timeout_seconds=TIMEOUT_SECONDS) for side in order}
    done = Round(**sides)
    if done.tiepoint.tracks_sha256 != done.stages.tracks_sha256:
        raise SideError("the two sides came to different tracks")
    return done


def table_of(name: str, rounds: Sequence[Round]) -> Table:
    """Return the rounds' times and ratios."""
    table = Table("round", "tiepoint s", "stages s", "ratio", title=name)
    for number, done in enumerate(rounds, start=1):
        row = (done.tiepoint.seconds, done.stages.seconds, done.ratio)
        table.add_row(str(number), *(f"{value:.2f}" for value in row))
    return table


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stages", description=__doc__)
    parser.add_argument("set", nargs="?", default="seneca30")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    try:
        rounds = measure(photos_root() / options.set / "images", options.rounds)
    except SideError as error:
        print(f"{options.set}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    ratio = median(done.ratio for done in rounds)
    if options.as_json:
        times = [[done.tiepoint.seconds, done.stages.seconds] for done in rounds]
        report = {"set": options.set, "ratio_to_plain_stages": ratio, "tiepoint_and_stages_seconds": times}
        print(json.dumps(report))  # noqa: T201
    else:
        console = Console()
        console.print(table_of(options.set, rounds))
        console.print(f"median ratio {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
