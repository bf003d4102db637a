"""Writes down how long each batch of real work took, and reads it again; one JSON object per line.

For ``tiepoint calibrate``. Does not cover which batches count
(:mod:`worker.running_batch`), nor what is made of them (:mod:`worker.calibration`).
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDuration:
    """One batch, from dispatch to completion."""

    kind: str
    variant: str
    items: int
    others: int
    """Reservations that were active beside its own when it was dispatched."""
    duration_ns: int


class DurationLog:
    """Appends to a file; a fault of it is told once, and costs no job anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_broken = False

    def note(self, batch: BatchDuration) -> None:
        """Append one line."""
        if self._is_broken:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(batch)) + "\n")
        except OSError as error:
            self._is_broken = True
            log.error("durations_not_written", file=str(self._path), error=str(error))


def read_durations(path: Path) -> Iterator[BatchDuration]:
    """Yield what has been written so far; a line that is being written is left out."""
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield BatchDuration(**json.loads(line))
