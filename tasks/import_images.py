"""Decides the kind `import.images`: check a source file, copy it into the store, register it.

Only header and end marker are looked at; what a full decode alone shows is
found by the features kinds.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from pydantic import field_validator

from governor.model import Estimate, Grant
from tasks.containers import ImageHeader, read_header
from tasks.end_markers import ContainerError
from tasks.errors import Failure, ItemError, Reason
from tasks.exif import read_shot
from tasks.kind import Done, Failed, Kind, Outcome, Payload
from tasks.store import PhotoRecord, Source, Store

IMPORT_KIND = "import.images"
STAGE = "import"
MIB = 1 << 20

# The owner's frozen 128 KiB cannot hold an EXIF block or a copy buffer; see
# tests/unit/tasks/test_import_images.py for the measured peak.
ESTIMATE = Estimate(
    memory_fixed_bytes=16 * MIB, memory_per_item_bytes=319, max_batch=32, cpu_threads=1, io_slots=1
)

_CURES = {
    Reason.EMPTY_FILE: "Copy it from the camera again, or leave it out.",
    Reason.NOT_AN_IMAGE: "Convert it to JPEG, PNG, TIFF, WebP or BMP, or leave it out.",
    Reason.TRUNCATED: "Copy it from the camera again, or leave it out.",
    Reason.TOO_LARGE: "Shrink it to at most 100 megapixels.",
    Reason.UNREADABLE: "Check that the file can be opened, copy it again, or leave it out.",
    Reason.CHANGED_WHILE_COPYING: "Wait until nothing writes to it any more, then resume the project.",
}


class ImportPayload(Payload):
    """One source file of a project."""

    project: str
    name: str
    """The photo's name in the project: a relative path with "/"."""
    source: str
    """The absolute path of the file."""
    link: bool = False
    """Leave the file where it is instead of copying it."""

    @field_validator("name")
    @classmethod
    def _name_is_relative(cls, name: str) -> str:
        if not Source.is_valid_name(name):
            raise ValueError("not a relative path")
        return name


def run(payloads: Sequence[ImportPayload], _grant: Grant, store: Store) -> Iterator[Outcome]:
    """Import each source file; a file that cannot be used fails alone."""
    for payload in payloads:
        try:
            is_new = _import_one(payload, store)
        except ItemError as error:
            yield Failed(failure=error.failure)
        else:
            yield Done(recorded_items=int(is_new))


def _import_one(payload: ImportPayload, store: Store) -> bool:
    """Import one file; True when its logical image is new to the project."""
    path = store.resolve_source(payload.source)
    try:
        with path.open("rb") as file:
            content = _take(file, path, payload, store)
    except OSError as error:
        cause = f"it cannot be read ({error.strerror})"
        raise ItemError(_failure(payload, Reason.UNREADABLE, cause)) from error
    return store.project(payload.project).register(payload.name, content)


def _take(file: io.BufferedReader, path: Path, payload: ImportPayload, store: Store) -> str:
    """Bring an open source into the store; return its content hash."""
    before = os.fstat(file.fileno())
    try:
        header = read_header(file, before.st_size)
    except ContainerError as error:
        raise ItemError(_failure(payload, error.reason, error.cause)) from error
    file.seek(0)
    content = hashlib.file_digest(file, "sha256").hexdigest()
    if not (store.has_photo(content) and store.photo_is_intact(content)):
        store.discard_photo(content)
        _store(file, path, content, payload, store)
        store.record_photo(content, _record(header, before.st_size))
    after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ItemError(_changed(payload))
    return content


def _store(file: io.BufferedReader, path: Path, content: str, payload: ImportPayload, store: Store) -> None:
    if payload.link:
        store.link_photo(content, path)
        return
    file.seek(0)
    if not store.copy_photo(content, file):
        raise ItemError(_changed(payload))


def _record(header: ImageHeader, size_bytes: int) -> PhotoRecord:
    shot = read_shot(header.exif, header.width_px, header.height_px)
    return PhotoRecord(
        width_px=header.width_px,
        height_px=header.height_px,
        format=header.format,
        size_bytes=size_bytes,
        mode=header.mode,
        bits_per_channel=header.bits_per_channel,
        progressive=header.progressive,
        make=shot.make,
        model=shot.model,
        focal_length_px=shot.focal.length_px,
        focal_is_prior=shot.focal.is_prior,
        f35_mm=shot.f35_mm,
        gps=shot.gps,
        date=shot.date,
        orientation=shot.orientation,
    )


def _failure(payload: ImportPayload, reason: Reason, cause: str) -> Failure:
    return Failure(
        name=payload.name,
        reason=reason,
        cause=f"{payload.name} cannot be imported: {cause}.",
        cure=f"{payload.source}: {_CURES[reason]}",
    )


def _changed(payload: ImportPayload) -> Failure:
    return _failure(payload, Reason.CHANGED_WHILE_COPYING, "it changed while it was being copied")


def _warm_up() -> None:
    """Read a tiny header, so that a child's baseline holds the libraries."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(file, "JPEG", exif=Image.Exif())
    header = read_header(file, len(file.getvalue()))
    read_shot(header.exif, header.width_px, header.height_px)


KINDS: tuple[Kind, ...] = (
    Kind(
        name=IMPORT_KIND,
        version=1,
        stage=STAGE,
        estimate=ESTIMATE,
        payload=ImportPayload,
        run=run,
        warm_up=_warm_up,
    ),
)
