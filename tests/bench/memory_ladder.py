"""Measures feature extraction against its reservation, over sizes, looks, extractors and threads.

Does not cover how they are told, nor the other kinds (:mod:`tests.bench.memory`).
"""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from governor.model import Estimate
from tasks.feature_memory import features_estimate, peak_bound_bytes
from tasks.feature_sets import FEATURE_KINDS, features_key
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import Store
from tests.acceptance.child_batches import run_under
from tests.acceptance.ladder_photos import (
    LADDER_MEGAPIXELS,
    LOOKS,
    Content,
    photo_of,
    render,
    size_of,
)

GIB = 1 << 30
EXTRACTORS: tuple[Extractor, ...] = ("orb", "sift", "rootsift")
DEFAULT_SIZE_PX = FeatureParameters().max_image_size_px
FULL_SIZE_PX = 65_535
FULL_SIZE_LOOKS = ("gray PNG", "JPEG", "16-bit colour TIFF")
DENSE: tuple[tuple[Content, Extractor], ...] = (
    ("squares", "sift"),
    ("dots", "sift"),
    ("fullest_sift", "sift"),
    ("fullest_orb", "orb"),
)
DENSE_MEGAPIXELS = (1, 4, 12)
LARGEST_RESERVATION_BYTES = 14 * GIB
FREE_BESIDE_BYTES = 4 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One photo, and how its features are sought."""

    megapixels: int
    look: str
    content: Content = "photo"
    extractor: Extractor
    max_image_size_px: int = DEFAULT_SIZE_PX
    threads: int = 2

    @property
    def parameters(self) -> FeatureParameters:
        """Return the parameters of the case."""
        return FeatureParameters(extractor=self.extractor, max_image_size_px=self.max_image_size_px)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What one case took, and what it had reserved."""

    case: Case
    peak_bytes: int
    reserved_bytes: int
    bound_bytes: int
    """What the photo's header alone leads to, without the frozen figure."""
    asked_again: bool
    """The picture had more keypoints than its header tells: it asked for more before it sought them."""
    seconds: float

    @property
    def ratio(self) -> float:
        """Return the peak in parts of the reservation."""
        return self.peak_bytes / self.reserved_bytes

    @property
    def waste_ratio(self) -> float:
        """Return the reservation in parts of the peak."""
        return self.reserved_bytes / max(1, self.peak_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A case that was not run, and why."""

    case: Case
    reason: str


def all_cases() -> Iterator[Case]:
    """Yield the whole ladder: photos at the default and at full size, dense pictures, one and two threads."""
    for megapixels in LADDER_MEGAPIXELS:
        for extractor in EXTRACTORS:
            for look in LOOKS:
                yield Case(megapixels=megapixels, look=look, extractor=extractor)
            yield Case(megapixels=megapixels, look="JPEG", extractor=extractor, threads=1)
            for look in FULL_SIZE_LOOKS:
                case = Case(megapixels=megapixels, look=look, extractor=extractor)
                yield replace(case, max_image_size_px=FULL_SIZE_PX)
    for megapixels in DENSE_MEGAPIXELS:
        for content, extractor in DENSE:
            case = Case(megapixels=megapixels, look="gray PNG", content=content, extractor=extractor)
            yield from (
                replace(case, max_image_size_px=FULL_SIZE_PX, threads=threads) for threads in (1, 2, 12)
            )


def climb(cases: Iterable[Case], source: Path) -> Iterator[Rung | LeftOut]:
    """Measure cases, those of one photo after each other; large photos are made of the one at ``source``."""

    def photo(case: Case) -> tuple[int, str, str]:
        return case.megapixels, case.look, case.content

    for _, of_one_photo in groupby(sorted(cases, key=photo), key=photo):
        with tempfile.TemporaryDirectory(prefix="tiepoint-ladder-") as name:
            yield from _climb_one_photo(list(of_one_photo), source, Path(name))


def _climb_one_photo(cases: list[Case], source: Path, folder: Path) -> Iterator[Rung | LeftOut]:
    store = Store(folder / "store", [folder])
    store.create()
    first = cases[0]
    content = photo_of(
        LOOKS[first.look], render(first.content, size_of(first.megapixels), source), store, folder
    )
    for case in cases:
        reserved = features_estimate(store.photo_record(content), case.parameters)
        reason = _no_room_for(reserved)
        yield LeftOut(case=case, reason=reason) if reason else _rung(case, reserved, content, store)


def _rung(case: Case, reserved: Estimate, content: str, store: Store) -> Rung:
    store.discard(features_key(content, case.parameters))  # made by a case of other threads
    payload = {"image": content, "max_image_size_px": case.max_image_size_px}
    measured, used = run_under(reserved, FEATURE_KINDS[case.extractor], [payload], store, case.threads)
    if measured.actions != ["done"]:
        raise RuntimeError(f"{case} ended with {measured.frames}")
    bound_bytes = peak_bound_bytes(store.photo_record(content), case.parameters)
    return Rung(
        case=case,
        peak_bytes=measured.peak_bytes,
        reserved_bytes=used.memory_bytes(1),
        bound_bytes=bound_bytes,
        asked_again=used != reserved,
        seconds=measured.seconds,
    )


def _no_room_for(estimate: Estimate) -> str:
    """Return why a case cannot be run here; empty where it can."""
    needed_bytes = estimate.memory_bytes(1)
    if needed_bytes > LARGEST_RESERVATION_BYTES:
        limit = LARGEST_RESERVATION_BYTES // GIB
        return f"needs {needed_bytes / GIB:.1f} GiB, more than the {limit} GiB of this bench"
    free_bytes = _available_bytes()
    if needed_bytes + FREE_BESIDE_BYTES > free_bytes:
        return f"needs {needed_bytes / GIB:.1f} GiB, and {free_bytes / GIB:.1f} GiB are free"
    return ""


def _available_bytes() -> int:
    (line,) = (
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
    )
    return int(line.split()[1]) * 1024
