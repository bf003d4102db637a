"""Measures `tiepoint run` beside COLMAP alone: the same photos, machine and mapper, one after the other.

``python -m tests.bench.colmap [SET...] [--json]`` (``make bench``); a set is a folder
below ``$TIEPOINT_PHOTOS``. Both use all processors, at most 8192 RootSIFT
features per image and all pairs. One run each: differences below a tenth in
time mean nothing.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.side import Side, SideError, run_side
from tests.conftest import photos_root

SETS = ("kermit", "lund_door")
TIMEOUT_SECONDS = 900.0
ROWS = ("seconds", "registered_images", "points", "reprojection_error_px", "track_length")


def compare(photos: Path) -> tuple[Side, Side]:
    """Return what Tiepoint and COLMAP make of a folder of photos.

    Raises:
        SideError: one of them hung, failed, or made no model.
    """
    python = [sys.executable, "-P", "-m"]
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as name:
        folder = Path(name)
        tiepoint = [*python, "worker.cli", "run", str(photos), "--project", str(folder / "tiepoint")]
        tiepoint += ["--profile", "dedicated", "--json"]
        # Found in this checkout, not in an installed copy: without -P.
        colmap = [sys.executable, "-m", "tests.bench.colmap_alone", str(photos), str(folder / "colmap")]
        return (
            _named("tiepoint", tiepoint),
            _named("colmap", colmap),
        )


def _named(name: str, command: list[str]) -> Side:
    try:
        return run_side(command, timeout_seconds=TIMEOUT_SECONDS)
    except SideError as error:
        raise SideError(f"{name} {error}") from error


def table_of(name: str, tiepoint: Side, colmap: Side) -> Table:
    """Return the two sides and their ratios."""
    table = Table("", "tiepoint", "colmap", "ratio", title=name)
    for row in ROWS:
        ours, theirs = getattr(tiepoint, row), getattr(colmap, row)
        table.add_row(row.replace("_", " "), f"{ours:.5g}", f"{theirs:.5g}", f"{ours / theirs:.2f}")
    return table


def main(arguments: Sequence[str]) -> int:
    """Measure sets of photos, print a table or JSON for each; the exit code tells whether all worked."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.colmap", description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args(arguments)
    console = Console()
    failed = False
    for name in options.sets:
        try:
            tiepoint, colmap = compare(photos_root() / name / "images")
        except SideError as error:
            failed = True
            console.print(f"{name}: {error}", markup=False, soft_wrap=True)
            continue
        if options.as_json:
            sides = {"tiepoint": asdict(tiepoint), "colmap": asdict(colmap)}
            print(json.dumps({"set": name, "seconds_ratio": tiepoint.seconds / colmap.seconds, **sides}))  # noqa: T201
        else:
            console.print(table_of(name, tiepoint, colmap))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
