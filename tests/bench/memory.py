"""Measures whether reservations cover the truth, and what they waste.

``python -m tests.bench.memory [--json] [--megapixels N]... [--set SET] [--no-ladder] [--no-kinds]``

First a ladder of photos, from 1 to 100 megapixels, in every look and with every
extractor, each in a fresh process; then the hardest known batch of every other
kind; then a whole project (SET, a folder below ``$TIEPOINT_PHOTOS``). The peak
is the one that the product measures, the reservation the one that the product
makes. Ends with 1 where a peak exceeds its reservation. Takes half an hour.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.acceptance.ladder_photos import LADDER_MEGAPIXELS
from tests.bench.memory_kinds import KindFigure, hard_batches, real_project
from tests.bench.memory_ladder import Case, LeftOut, Rung, all_cases, climb
from tests.conftest import photos_root

MIB = 1 << 20
LADDER_SET = "brighton_beach"
"""Of the real sets the one with most corners per pixel; large photos are made of its first."""


def rung_row(rung: Rung) -> dict[str, Any]:
    """Return one case for JSON."""
    figures = {**asdict(rung), "ratio": rung.ratio, "waste_ratio": rung.waste_ratio}
    return {**figures.pop("case"), **figures}


def kind_row(figure: KindFigure) -> dict[str, Any]:
    """Return one kind's batch for JSON."""
    return {**asdict(figure), "ratio": figure.ratio, "waste_ratio": figure.waste_ratio}


def ladder_table(rungs: Sequence[Rung]) -> Table:
    """Return the measured cases."""
    headings = ("MP", "longer side px", "look", "content", "extractor", "threads")
    table = Table(*headings, "peak MiB", "reserved MiB", "ratio", "without the floor MiB", title="features")
    for rung in rungs:
        case = rung.case
        cells = (
            case.megapixels,
            case.max_image_size_px,
            case.look,
            case.content,
            case.extractor,
            case.threads,
        )
        table.add_row(
            *map(str, cells),
            f"{rung.peak_bytes / MIB:.0f}",
            f"{rung.reserved_bytes / MIB:.0f}{' (asked)' if rung.asked_again else ''}",
            f"{rung.ratio:.3f}",
            f"{rung.bound_bytes / MIB:.0f}",
        )
    return table


def left_out_table(cases: Sequence[LeftOut]) -> Table:
    """Return what was not measured, and why."""
    table = Table("MP", "longer side px", "extractor", "reason", title="left out")
    for left in cases:
        case: Case = left.case
        table.add_row(str(case.megapixels), str(case.max_image_size_px), case.extractor, left.reason)
    return table


def kinds_table(title: str, figures: Sequence[KindFigure]) -> Table:
    """Return each kind's peak and reservation."""
    table = Table("kind", "batch", "peak MiB", "reserved MiB", "ratio", "reserved / peak", title=title)
    for figure in figures:
        waste = f"{figure.waste_ratio:.1f}" if figure.waste_ratio else "unknown"
        amounts = (f"{figure.peak_bytes / MIB:.1f}", f"{figure.reserved_bytes / MIB:.1f}")
        table.add_row(figure.kind, figure.case, *amounts, f"{figure.ratio:.3f}", waste)
    return table


def main(arguments: Sequence[str]) -> int:
    """Measure, and print tables or one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--megapixels", type=int, action="append", choices=LADDER_MEGAPIXELS)
    parser.add_argument("--set", default="banana")
    parser.add_argument("--no-ladder", action="store_true")
    parser.add_argument("--no-kinds", action="store_true")
    options = parser.parse_args(arguments)
    rungs, left_out = _climb(options.megapixels or LADDER_MEGAPIXELS) if not options.no_ladder else ([], [])
    photos = photos_root() / options.set / "images"
    hard = [] if options.no_kinds else list(hard_batches(photos))
    project = [] if options.no_kinds else list(real_project(photos))
    if options.as_json:
        report = {
            "features": [rung_row(rung) for rung in rungs],
            "left_out": [{**asdict(left.case), "reason": left.reason} for left in left_out],
            "hard_batches": [kind_row(figure) for figure in hard],
            "project": [kind_row(figure) for figure in project],
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        console = Console()
        console.print(ladder_table(rungs), left_out_table(left_out))
        console.print(kinds_table("hard batches", hard), kinds_table(options.set, project))
    ratios = [rung.ratio for rung in rungs] + [figure.ratio for figure in (*hard, *project)]
    return int(max(ratios, default=0.0) > 1.0)


def _climb(megapixels: Sequence[int]) -> tuple[list[Rung], list[LeftOut]]:
    source: Path = min((photos_root() / LADDER_SET / "images").iterdir())
    results = list(climb((case for case in all_cases() if case.megapixels in megapixels), source))
    rungs = [result for result in results if isinstance(result, Rung)]
    return rungs, [result for result in results if isinstance(result, LeftOut)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
