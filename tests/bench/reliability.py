"""Drives stock Celery and Tiepoint through the same faults, and counts what has become of the jobs.

``python -m tests.bench.reliability [--case a,b,...] [--json]``. Each case is
played by a stock worker first (:mod:`tests.bench.reliability_stock` says how
it is set up), then by ours: the same play, the same client, a server of the
same sort each, on a Unix socket, with an append-only file. Counted are the
lines that jobs write when they start and end, and the messages that the
server holds. The exit code is 1 if ours is not as it must be; stock is told,
and not judged. docs/reliability.md holds what came out.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench import reliability_claims, reliability_deaths, reliability_outages
from tests.bench.reliability_case import Case, Result
from tests.bench.reliability_nodes import STOCK, TIEPOINT, Sort
from tests.bench.reliability_scene import Scene, scene

CASES = tuple(
    sorted(
        (*reliability_claims.CASES, *reliability_deaths.CASES, *reliability_outages.CASES),
        key=lambda case: case.letter,
    )
)
_COLUMNS = ("jobs", "starts", "done", "failed", "waiting", "lost", "ended_twice", "doubled")
_WIDEST_NAME = 22


def act(sort: Sort, play: Callable[[Scene], Result]) -> Result:
    """Play once, in a folder of its own that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder, scene(sort, Path(folder)) as made:
        return play(made)


def measure(cases: Sequence[Case], show: Callable[[str], None]) -> dict[str, Any]:
    """Play each case with both sorts, show a line each, and return the report."""
    report: dict[str, Any] = {}
    for case in cases:
        show(f"({case.letter}) {case.title}\n{_head()}")
        entry: dict[str, Any] = {"title": case.title}
        for name, sort, play in _plays(case):
            result = act(sort, play)
            entry[name] = result.to_dict()
            show(_row(name, result))
        entry["faults"] = case.faults(result)
        for fault in entry["faults"]:
            show(f"    not so: {fault}")
        report[case.letter] = entry
    return report


def _plays(case: Case) -> Iterator[tuple[str, Sort, Callable[[Scene], Result]]]:
    """Yield stock's plays, then ours."""
    yield STOCK.name, STOCK, case.stock_play or case.play
    for name, play in case.stock_variants.items():
        yield name, STOCK, play
    yield TIEPOINT.name, TIEPOINT, case.play


def _head() -> str:
    return " " * (_WIDEST_NAME + 4) + "".join(f"{column:>{len(column) + 2}}" for column in _COLUMNS)


def _row(name: str, result: Result) -> str:
    values = result.to_dict()
    counts = "".join(f"{values.pop(column):>{len(column) + 2}}" for column in _COLUMNS)
    more = ", ".join(f"{figure} {value}" for figure, value in values.items() if value is not None)
    return f"    {name:<{_WIDEST_NAME}}{counts}  {more}".rstrip()


def main(arguments: Sequence[str]) -> int:
    """Play, print, and tell by the exit code whether ours is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reliability")
    letters = ",".join(case.letter for case in CASES)
    parser.add_argument("--case", default=letters, help=f"which, of {letters}")
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    read = parser.parse_args(arguments)
    chosen = [case for case in CASES if case.letter in read.case.split(",")]
    report = measure(chosen, _silent if read.json else _show)
    print(json.dumps(report))  # noqa: T201 - the bench's output
    return int(any(entry["faults"] for entry in report.values()))


def _show(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the bench's output


def _silent(_line: str) -> None:
    """Show nothing."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
