"""Measures retrieval: which verified pairs it finds in real photos, and what thousands of images cost.

``python -m tests.bench.retrieval [--json] [--projects DIR] [--sets N] [SET...]``

A set is a folder below ``$TIEPOINT_PHOTOS``, or ``demo``. Its pairs are
matched exhaustively first, which takes minutes; ``--projects`` keeps those
stores in a folder and uses them again. ``--sets 0`` leaves out the second part.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from tasks.parameters import Extractor
from tests.bench.retrieval_recall import TOPS, Recall, exhaustive_project, recall_of
from tests.bench.retrieval_scale import ScaleFigures, measure_scale

SETS = ("seneca30", "brighton_beach", "opensfm_lund", "mixed_et_kermit", "demo")
EXTRACTORS: tuple[Extractor, ...] = ("rootsift", "orb")


def measure_recall(sets: list[str], extractors: tuple[Extractor, ...], projects: Path) -> list[Recall]:
    """Return how much of each set's verified pairs retrieval finds."""
    return [
        recall_of(name, *exhaustive_project(name, extractor, projects))
        for extractor in extractors
        for name in sets
    ]


def recall_table(recalls: list[Recall]) -> Table:
    """Return the figures for people."""
    table = Table("set", "features", "images", "pairs", *(f"top {top}" for top in TOPS), title="recall")
    for recall in recalls:
        shares = (f"{100 * recall.ratio_by_top[top]:.1f} %" for top in TOPS)
        table.add_row(recall.name, recall.extractor, str(recall.images), str(recall.pairs), *shares)
    return table


def scale_table(figures: ScaleFigures) -> Table:
    """Return the figures for people."""
    table = Table("", "value", title=f"{figures.sets} feature sets")
    for name, value in asdict(figures).items():
        if name.endswith("_bytes"):
            table.add_row(name.removesuffix("_bytes").replace("_", " "), f"{value / 2**20:.1f} MiB")
        else:
            table.add_row(name.replace("_", " "), f"{value:.4g}")
    return table


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.retrieval")
    parser.add_argument("set", nargs="*", default=list(SETS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--projects", type=Path, help="keep the exhaustively matched stores here")
    parser.add_argument("--features", choices=get_args(Extractor), action="append")
    parser.add_argument("--sets", type=int, default=5000, help="how many synthetic feature sets")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as scratch:
        extractors = tuple(options.features or EXTRACTORS)
        recalls = measure_recall(options.set, extractors, options.projects or Path(scratch))
        figures = measure_scale(options.sets, Path(scratch) / "scale") if options.sets else None
    if options.json:
        result = {"recall": [asdict(recall) for recall in recalls], "scale": figures and asdict(figures)}
        sys.stdout.write(json.dumps(result) + "\n")
        return 0
    console = Console()
    console.print(recall_table(recalls))
    if figures is not None:
        console.print(scale_table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
