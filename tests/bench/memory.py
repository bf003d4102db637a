"""Measures what every kind takes beside what it has reserved.

``python -m tests.bench.memory [--json] [--brief]``. First the ladder: features
of photos of 1 to 100 megapixels in every look, with every extractor, at the
default and at full size, and of pictures that are nothing but keypoints; one
fresh process each. Then all kinds, in the worst batch of a real project
(``tiepoint run``, retrieval and an index included). ``--brief`` takes one
extractor and two looks of each size. A case that would need more than 14 GiB,
or more than is free, is left out and named.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.memory_ladder import DEFAULT_SIZE_PX, Case, LeftOut, Rung, all_cases, climb
from tests.conftest import photos_root

_MIB = 1 << 20
_PROJECTS = (("brighton_beach", "rootsift"), ("kermit", "sift"), ("kermit", "orb"))
_BRIEF_LOOKS = frozenset({"JPEG", "16-bit colour TIFF"})


def kinds_of_projects() -> dict[str, dict[str, Any]]:
    """Run real projects; return for each kind its worst batch: reserved and peak bytes, and their ratio.

    Raises:
        subprocess.CalledProcessError: a run failed.
    """
    worst: dict[str, dict[str, Any]] = {}
    for photo_set, extractor in _PROJECTS:
        for kind, measured in _kinds_of(photo_set, extractor).items():
            if kind not in worst or measured["worst_ratio"] > worst[kind]["worst_ratio"]:
                worst[kind] = {**measured, "project": photo_set}
    return worst


def _kinds_of(photo_set: str, extractor: str) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder:
        command = [sys.executable, "-P", "-m", "worker.cli", "run", str(photos_root() / photo_set / "images")]
        command += ["--project", f"{folder}/project", "--features", extractor, "--pairs", "retrieval"]
        command += ["--profile", "dedicated", "--json"]
        done = subprocess.run(command, capture_output=True, check=True)
    kinds: dict[str, dict[str, Any]] = json.loads(done.stdout)["kinds"]
    return kinds


def cases(*, brief: bool) -> Iterator[Case]:
    """Yield the cases of the ladder, or a few of each size."""
    for case in all_cases():
        is_brief = case.extractor == "rootsift" and case.look in _BRIEF_LOOKS
        if not brief or (is_brief and case.max_image_size_px == DEFAULT_SIZE_PX):
            yield case


def as_row(result: Rung | LeftOut) -> dict[str, Any]:
    """Return one line of the report as a JSON object."""
    if isinstance(result, LeftOut):
        return {**asdict(result.case), "left_out": result.reason}
    measured = asdict(result)
    case = measured.pop("case")
    return {**case, **measured, "ratio": result.ratio, "waste_ratio": result.waste_ratio}


def _line(row: dict[str, Any]) -> str:
    size = "default" if row["max_image_size_px"] == DEFAULT_SIZE_PX else "full"
    name = f"{row['megapixels']:3d} MP  {row['look']:18} {row['content']:12} {row['extractor']:8}"
    head = f"{name} {size:7} {row['threads']:2d} threads"
    if "left_out" in row:
        return f"{head}  left out: {row['left_out']}"
    peak, reserved = row["peak_bytes"] / _MIB, row["reserved_bytes"] / _MIB
    again = "  asked for more" if row["asked_again"] else ""
    return f"{head} {peak:8.0f} of {reserved:6.0f} MiB  {row['ratio']:.2f}{again}"


def _kind_line(kind: str, measured: dict[str, Any]) -> str:
    peak, reserved = measured["peak_bytes"] / _MIB, measured["reserved_bytes"] / _MIB
    waste = f"{reserved / peak:6.1f} times" if peak else "unmeasurably little"
    return f"{kind:26} {peak:8.1f} of {reserved:7.1f} MiB  {measured['worst_ratio']:.2f}  reserved {waste}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 where anything took more than it had reserved."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--brief", action="store_true", help="one extractor and two looks of each size")
    read = parser.parse_args(arguments)
    source = min((photos_root() / "brighton_beach" / "images").iterdir())
    rows = []
    for result in climb(cases(brief=read.brief), Path(source)):
        rows.append(as_row(result))
        if not read.json:
            print(_line(rows[-1]), flush=True)  # noqa: T201 - the bench's output
    kinds = kinds_of_projects()
    if read.json:
        print(json.dumps({"ladder": rows, "kinds": kinds}))  # noqa: T201 - the bench's output
    else:
        print("\n".join(_kind_line(*item) for item in kinds.items()))  # noqa: T201 - the bench's output
    ratios = [row.get("ratio", 0.0) for row in rows] + [kind["worst_ratio"] for kind in kinds.values()]
    return int(max(ratios) > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
