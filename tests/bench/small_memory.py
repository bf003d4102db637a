"""Measures a small machine: SIFT on full-size photos within a memory cgroup, stock Celery beside ours.

``python -m tests.bench.small_memory [--json] [--photos N] [--only SIDE]``. One
after the other, each in a memory cgroup of 2.5 GiB without swap: a stock Celery worker
(prefork, concurrency 2, acks late) and ours (profile ``dedicated``, 2 CPUs, no
``--memory``: it has to see the limit itself). Both run the same callback on the
same photos, from the same messages of a stock client, with the store on disk
and the Redis server outside the cgroup.

SIFT takes 238 bytes per pixel, so one photo of the set ``banana`` (3008 x 2000)
takes 1.4 GiB: one fits, two do not. Kernel kills come from the cgroup's own
counter. A side that does not end is stopped after ``--timeout`` seconds. Needs
root, to make a cgroup.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from governor.model import Grant
from tasks import import_images
from tasks.features import FeaturePayload
from tasks.import_images import ImportPayload
from tasks.parameters import ProjectParameters
from tasks.store import Source, Store
from tests.bench.small_memory_side import STOCK, TIEPOINT, Jobs, Side, SmallMemoryError, run_side
from tests.conftest import photos_root
from tests.memory_cgroup import NoMemoryCgroupError

LIMIT_BYTES = 2_684_354_560
"""2.5 GiB."""
TIMEOUT_SECONDS = 300.0
SIDES = (STOCK, TIEPOINT)
_PROJECT = "bench"


def import_photos(photos: Sequence[Path], root: Path) -> Jobs:
    """Put photos into a new store; return the jobs that find SIFT features at their full size."""
    store = Store(root, import_roots=tuple({path.parent for path in photos}))
    store.create()
    project = store.project(_PROJECT)
    sources = [Source(name=path.name, path=str(path)) for path in photos]
    project.create(ProjectParameters(), sources)
    payloads = [ImportPayload(project=_PROJECT, name=each.name, source=each.path) for each in sources]
    list(import_images.run(payloads, Grant(batch=len(payloads), cpu_threads=1, memory_bytes=0), store))
    return Jobs(
        store=store, payloads=tuple(_at_full_size(store, image.content) for image in project.images())
    )


def _at_full_size(store: Store, content: str) -> FeaturePayload:
    record = store.photo_record(content)
    return FeaturePayload(image=content, max_image_size_px=max(record.width_px, record.height_px))


def measure(photos: Sequence[Path], sides: Sequence[Side], *, timeout_seconds: float) -> dict[str, Any]:
    """Run the sides one after the other, each on a store of its own, and return the report.

    Raises:
        SmallMemoryError: a worker did not start.
        NoMemoryCgroupError: no cgroup can be made here.
    """
    report: dict[str, Any] = {"limit_bytes": LIMIT_BYTES}
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder:
        for side in sides:
            jobs = import_photos(photos, Path(folder) / f"{side.name}-store")
            result = run_side(
                side,
                jobs,
                Path(folder) / side.name,
                limit_bytes=LIMIT_BYTES,
                timeout_seconds=timeout_seconds,
            )
            report[side.name] = asdict(result)
    return report


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.small_memory")
    parser.add_argument("--json", action="store_true", help="print one JSON object, indented otherwise")
    parser.add_argument("--photos", type=int, default=8, help="how many photos of the set banana")
    parser.add_argument("--only", choices=[side.name for side in SIDES], help="leave the other side out")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, help="seconds, for each side")
    read = parser.parse_args(arguments)
    photos = sorted((photos_root() / "banana" / "images").iterdir())[: read.photos]
    sides = [side for side in SIDES if read.only in {None, side.name}]
    try:
        report = measure(photos, sides, timeout_seconds=read.timeout)
    except (SmallMemoryError, NoMemoryCgroupError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the bench's output
        return 1
    print(json.dumps(report, indent=None if read.json else 2))  # noqa: T201 - the bench's output
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
