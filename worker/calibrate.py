"""Measures how long batches take on this machine: the same rendered flight, worked on again and again.

Each round has photos of its own (the same pixels, other files), so that
everything is worked on anew. One governed worker does it all as it would any
project, so the batches that are measured are those that occur here. Does not
cover what is made of the durations (:mod:`worker.calibration`).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tasks.demo_scene import PHOTOS_FOLDER, render_scene
from tasks.opencv_build import opencv_build
from tasks.parameters import ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Project, Store
from worker.calibration import Measured, profiles_of
from worker.duration_log import read_durations
from worker.fingerprint import fingerprint_of
from worker.local_run import LocalOptions, Work, check_machine, part_of_machine, run_in_turn
from worker.node import Node

_COMMENT = b"\xff\xfe"
"""JPEG's marker of a comment; it follows the two bytes that every file begins with."""

_TOLD_EVERY_SECONDS = 10.0

OnProgress = Callable[[Measured, float], None]
"""Is told now and then what is measured, and for how many seconds; nothing of the first round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """When enough is measured."""

    seconds: float
    """No round begins later than this after the first."""
    rounds: int | None = None
    """So many at most, besides the first, which loads libraries and is not counted."""


def calibrate(folder: Path, options: LocalOptions, wanted: Wanted, on_progress: OnProgress) -> Measured:
    """Measure until the time is over; ``folder`` is empty, and holds store, photos and log.

    Raises:
        RunError: a round could not be finished.
        WrongSettingError: another worker has the machine.
    """
    check_machine(options)
    render_scene(folder)
    store = Store(folder / "store")
    store.create()
    log_path, photos = folder / "durations", folder / PHOTOS_FOLDER
    measuring = _Measuring(
        store=store,
        photos=photos,
        durations=log_path,
        wanted=wanted,
        on_progress=on_progress,
        conditions=conditions(),
        hardware=fingerprint_of(Node(part_of_machine(options))),
    )
    work = Work(
        store=store,
        projects=measuring.rounds(),
        folders=set(),
        log_path=folder / "worker.log",
        go_on="calibrate again",
    )
    run_in_turn(work, replace(options, durations=log_path), lambda *_: measuring.tell_if_due())
    return measuring.measured()


@dataclass(slots=True, kw_only=True)
class _Measuring:
    """The rounds, and what they have brought so far."""

    store: Store
    photos: Path
    durations: Path
    wanted: Wanted
    on_progress: OnProgress
    conditions: Mapping[str, str]
    hardware: Mapping[str, str]
    """Asked once: neither changes while it is measured."""
    _lines_of_the_first: int = 0
    """Durations of the round that is not counted."""
    _begun: float | None = None
    """When the rounds that count began; None = they have not."""
    _told: float = 0.0

    def rounds(self) -> Iterator[Project]:
        """Yield a project for each round, as long as there is time."""
        yield self._round(0)
        self._lines_of_the_first = sum(1 for _ in read_durations(self.durations))
        self._begun = self._told = time.monotonic()
        number = 1
        while not self._is_enough(number, time.monotonic() - self._begun):
            yield self._round(number)
            self._tell(time.monotonic() - self._begun)
            number += 1

    def _is_enough(self, number: int, seconds: float) -> bool:
        is_last = self.wanted.rounds is not None and number > self.wanted.rounds
        return is_last or (number > 1 and seconds >= self.wanted.seconds)

    def tell_if_due(self) -> None:
        """Tell what is measured within a round: who is interrupted then has that, too."""
        if self._begun is not None and time.monotonic() - self._told >= _TOLD_EVERY_SECONDS:
            self._tell(time.monotonic() - self._begun)

    def _tell(self, seconds: float) -> None:
        self._told = time.monotonic()
        self.on_progress(self.measured(), seconds)

    def _round(self, number: int) -> Project:
        folder = self.store.root / "calibration" / f"round-{number}"
        folder.mkdir(parents=True)
        for photo in sorted(self.photos.iterdir()):
            (folder / photo.name).write_bytes(with_comment(photo.read_bytes(), f"round {number}"))
        project = self.store.project(f"round-{number}")
        project.create(ProjectParameters(), find_photos(folder))
        return project

    def measured(self) -> Measured:
        """Return what is measured so far."""
        batches = list(read_durations(self.durations))[self._lines_of_the_first :]
        return profiles_of(batches, self.conditions, self.hardware)


def with_comment(jpeg: bytes, text: str) -> bytes:
    """Return a JPEG file of the same picture that is another file: with a comment in front."""
    told = text.encode("ascii")
    return jpeg[:2] + _COMMENT + (len(told) + 2).to_bytes(2, "big") + told + jpeg[2:]


def conditions() -> Mapping[str, str]:
    """Return under what conditions durations are measured here: they are a part of a profile's identity."""
    return {
        "tiepoint": version("tiepoint"),
        "opencv": opencv_build(),
        "parameters": ProjectParameters().model_dump_json(),
    }
