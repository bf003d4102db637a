"""Decides the kind `import.images`: check a source file, copy it into the store, register it.

A name that is registered already is imported to repair the store: from the
store's own copy where that is whole, else from the source, which must still
hold what was registered. Only header and end marker are looked at; what a full
decode alone shows is found by the features kinds.
"""

import errno
import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image
from pydantic import field_validator

from governor.model import Estimate, Grant
from tasks.containers import ImageHeader, read_header
from tasks.end_markers import ContainerError
from tasks.errors import CorruptArtefactError, Failure, ItemError, MissingArtefactError, Reason
from tasks.estimate_forms import EstimateForms
from tasks.exif import read_shot
from tasks.kind import Done, Elsewhere, Failed, Kind, Outcome, Payload
from tasks.old_estimates import OLD_ESTIMATES
from tasks.regular_files import open_regular
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
    Reason.LOST: "Put the original photo back there and resume the project, or go on without it.",
}
_NOT_THE_PHOTOS_FAULT = {Reason.OUTSIDE_IMPORT_ROOTS, Reason.CHANGED_WHILE_COPYING}
_NOT_SEEN = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ESTALE}
"""What opening a file says where a share is not mounted, or not for this machine's user."""


class _NotSeenError(ItemError):
    """This machine does not see the source; another that has its folder may."""

    def __init__(self, failure: Failure, *, counts_attempt: bool) -> None:
        super().__init__(failure)
        self.counts_attempt = counts_attempt


class ImportPayload(Payload):
    """One source file of a project."""

    project: str
    name: str
    """The photo's name in the project: a relative path with "/"."""
    source: str
    """The path of the file: absolute, or relative to the store's root."""
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
        except _NotSeenError as error:
            yield Elsewhere(failure=error.failure, source=payload.source, counts_attempt=error.counts_attempt)
        except ItemError as error:
            yield Failed(failure=error.failure)
        else:
            yield Done(recorded_items=int(is_new))


def _import_one(payload: ImportPayload, store: Store) -> bool:
    """Import one file; True when its logical image is new to the project."""
    project = store.project(payload.project)
    content = project.registered_content(payload.name)
    if content is None:
        content = _import_source(payload, store)
    elif not _is_whole_again(content, store):
        _import_again(content, payload, store)
    return project.register(payload.name, content)


def _is_whole_again(content: str, store: Store) -> bool:
    """Tell whether the store has a photo whole, its record read anew from the copy if need be."""
    try:
        if not store.photo_is_intact(content):
            return False
        if _has_readable_record(content, store):
            return True
        with open_regular(store.photo_path(content)) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            store.record_photo(content, _record(read_header(file, size_bytes), size_bytes))
    except (MissingArtefactError, ItemError, ContainerError, OSError):
        return False
    return True


def _has_readable_record(content: str, store: Store) -> bool:
    """Tell whether a photo's record can be read; a damaged one is discarded."""
    try:
        store.photo_record(content)
    except (MissingArtefactError, CorruptArtefactError):
        store.discard_photo_record(content)
        return False
    return True


def _import_again(content: str, payload: ImportPayload, store: Store) -> None:
    """Bring a photo that the store has lost back from its source, which must still hold it."""
    try:
        _import_source(payload, store, expected=content)
    except _NotSeenError as error:
        if not error.counts_attempt:
            raise
        raise _NotSeenError(_lost(payload, error.failure), counts_attempt=True) from error
    except ItemError as error:
        if error.failure.reason in _NOT_THE_PHOTOS_FAULT:
            raise
        raise ItemError(_lost(payload, error.failure)) from error


def _import_source(payload: ImportPayload, store: Store, expected: str | None = None) -> str:
    """Bring a source file into the store; return its content hash."""
    path = _resolved(payload, store)
    try:
        with open_regular(path) as file:
            return _take(file, path, payload, store, expected)
    except OSError as error:
        failure = _failure(payload, Reason.UNREADABLE, f"it cannot be read ({error.strerror})")
        if error.errno in _NOT_SEEN:
            raise _NotSeenError(failure, counts_attempt=True) from error
        raise ItemError(failure) from error


def _resolved(payload: ImportPayload, store: Store) -> Path:
    """Return where the source is, if this node may read there."""
    try:
        return store.resolve_source(payload.source)
    except ItemError as error:
        raise _NotSeenError(error.failure, counts_attempt=False) from error


def _take(file: BinaryIO, path: Path, payload: ImportPayload, store: Store, expected: str | None) -> str:
    """Bring an open source into the store; return its content hash."""
    before = os.fstat(file.fileno())
    try:
        header = read_header(file, before.st_size)
    except ContainerError as error:
        raise ItemError(_failure(payload, error.reason, error.cause)) from error
    file.seek(0)
    content = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if expected not in {None, content}:
        raise ItemError(_failure(payload, Reason.LOST, "it has changed since it was imported"))
    if not _is_stored(content, store):
        store.discard_photo(content)
        _store(file, path, content, payload, store)
        store.record_photo(content, _record(header, before.st_size))
    after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ItemError(_changed(payload))
    return content


def _is_stored(content: str, store: Store) -> bool:
    return (
        store.has_photo(content) and store.photo_is_intact(content) and _has_readable_record(content, store)
    )


def _store(file: BinaryIO, path: Path, content: str, payload: ImportPayload, store: Store) -> None:
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
        cause=f"{_prefix(payload)}{cause}.",
        cure=f"{payload.source}: {_CURES[reason]}",
    )


def _lost(payload: ImportPayload, failure: Failure) -> Failure:
    why = failure.cause.removeprefix(_prefix(payload))
    return replace(
        failure,
        reason=Reason.LOST,
        cause=f"{payload.name} is lost: what the project has of it is damaged or gone; the original: {why}",
        cure=f"{payload.source}: {_CURES[Reason.LOST]}",
    )


def _prefix(payload: ImportPayload) -> str:
    return f"{payload.name} cannot be imported: "


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
        forms=EstimateForms(old=OLD_ESTIMATES[IMPORT_KIND]),
        payload=ImportPayload,
        run=run,
        warm_up=_warm_up,
    ),
)
