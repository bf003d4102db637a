"""Runs a project's stages as plain functions on a pool of processes: what a short script would do.

``python -m tests.bench.stages_alone PHOTOS FOLDER [PROCESSES]`` prints the
models and ``tracks_sha256`` as JSON. Stage by stage, one thread per process;
no queue, no governor, no durable state but the store itself.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import cv2

from tasks.summary import summarise
from tests.plain_runner import run_plain

_BATCH = 8
"""Small enough that the last batches of a stage spread over the processes."""


def main(photos: Path, folder: Path, processes: int = 2) -> None:
    """Run all stages, and print what came out."""
    # Spawned: a fork of a process that has used OpenCV or COLMAP may hang.
    with ProcessPoolExecutor(processes, get_context("spawn"), partial(cv2.setNumThreads, 1)) as pool:
        result = run_plain(photos, folder, max_batch=_BATCH, with_model=True, map_batches=pool.map)
    print(json.dumps(summarise(result.store, result.project)))  # noqa: T201 - the caller reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
