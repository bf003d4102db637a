"""Holds the photos of the store: original bytes named by their SHA-256, and what their header says.

A photo is there when its record is: ``photos/<2 digits>/<sha256>`` (the
bytes) or ``<sha256>.link`` (where a linked file is) is published first, then
``<sha256>.json``. Reading image headers is the business of
:mod:`tasks.import_images`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.errors import (
    CorruptArtefactError,
    Failure,
    ItemError,
    MissingArtefactError,
    Reason,
    StoreError,
)
from tasks.store.canonical import canonical_json
from tasks.store.keys import is_sha256
from tasks.store.publication import (
    make_folder,
    plain_store_errors,
    publish_file,
    remove,
    replace_file,
    sync_folder,
    write_bytes,
)
from tasks.store.tensors import CHUNK_BYTES, file_sha256


class _Record(BaseModel):
    """Base of what is read back from disk, hence validated: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Gps(_Record):
    """Where a photo was taken (WGS 84)."""

    latitude_degrees: float
    longitude_degrees: float
    altitude_m: float


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Camera:
    """What photos of one camera have in common (COLMAP's rule)."""

    make: str
    model: str
    focal_length_px: float
    focal_is_prior: bool
    width_px: int
    height_px: int


class PhotoRecord(_Record):
    """What the header of a photo says, read once at import."""

    width_px: int = Field(ge=1)
    height_px: int = Field(ge=1)
    format: str = "jpeg"
    """jpeg, png, tiff, webp, bmp, heic or raw; found from the content."""
    size_bytes: int = Field(default=0, ge=0)
    mode: str = "RGB"
    """Pillow's name of the pixel form ("L", "RGB", "I;16", "CMYK", ...)."""
    bits_per_channel: int = Field(default=8, ge=1)
    """Of the file; Pillow's mode says 8 for 16-bit colour."""
    progressive: bool = False
    """A JPEG that the decoder must hold whole; decides the memory of decoding."""
    make: str = ""
    model: str = ""
    focal_length_px: float = Field(gt=0.0)
    focal_is_prior: bool
    """True: measured by EXIF, to be trusted. False: 1.2 times the longer side."""
    f35_mm: float | None = None
    """The 35 mm equivalent focal length, where EXIF gives it."""
    gps: Gps | None = None
    date: str | None = None
    """EXIF's text "YYYY:MM:DD hh:mm:ss", local time of the camera."""
    orientation: int = Field(default=1, ge=1, le=8)
    """EXIF's value; recorded, never applied to pixels."""

    @property
    def camera(self) -> Camera:
        """The camera that took the photo: make, model, focal length and size."""
        return Camera(
            make=self.make,
            model=self.model,
            focal_length_px=self.focal_length_px,
            focal_is_prior=self.focal_is_prior,
            width_px=self.width_px,
            height_px=self.height_px,
        )


class _Link(_Record):
    """Where a linked photo is, and how it looked when it was hashed."""

    path: str
    size_bytes: int
    modified_ns: int

    @classmethod
    def to_file(cls, path: Path) -> Self:
        stat = path.stat()
        return cls(path=str(path), size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns)


class Photos:
    """The photos below one store root; any process and thread may use it."""

    def __init__(self, root: Path, check_root: Callable[[], None]) -> None:
        self._root = root
        self._check_same_root = check_root

    def has(self, content: str) -> bool:
        """Tell whether a photo and its record are there (a linked file: unchanged)."""
        if not self.has_record(content):
            return False
        try:
            self.path(content)
        except (MissingArtefactError, ItemError):
            return False
        return True

    def has_record(self, content: str) -> bool:
        """Tell whether a photo's record is there, whatever has become of its bytes."""
        place = _record_place(self._place(content))
        with plain_store_errors(place):
            return place.is_file()

    def copy(self, content: str, source: BinaryIO) -> bool:
        """Copy the rest of ``source`` as the photo ``content``.

        Returns False, and stores nothing, when the bytes do not hash to
        ``content``: the source has changed since it was hashed.
        """
        place = self._prepared_place(content)
        digest = hashlib.sha256()

        def write(file: BinaryIO) -> None:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != content:
                raise _SourceChangedError

        with plain_store_errors(place):
            try:
                publish_file(place, write)
            except _SourceChangedError:
                return False
            sync_folder(place.parent)
        return True

    def link(self, content: str, source: Path) -> None:
        """Let the photo ``content`` be the user's own file, which stays where it is."""
        place = _link_place(self._prepared_place(content))
        text = _Link.to_file(source).model_dump_json().encode()
        with plain_store_errors(place):
            replace_file(place, lambda file: write_bytes(file, text))
            sync_folder(place.parent)

    def record(self, content: str, record: PhotoRecord) -> None:
        """Publish the record of a photo whose bytes are there; from now on the photo is."""
        place = _record_place(self._prepared_place(content))
        text = canonical_json(record.model_dump(mode="json")).encode()
        with plain_store_errors(place):
            publish_file(place, lambda file: write_bytes(file, text))
            sync_folder(place.parent)

    def path(self, content: str) -> Path:
        """Return the file with a photo's bytes.

        Raises:
            MissingArtefactError: no such photo.
            ItemError: a linked file is gone or no longer the same.
        """
        place = self._place(content)
        with plain_store_errors(place):
            if place.is_file():
                return place
        return self._linked_path(content, _link_place(place))

    def read_record(self, content: str) -> PhotoRecord:
        """Return what the header of a photo says.

        Raises:
            MissingArtefactError: no such photo.
            CorruptArtefactError: the record is damaged: :meth:`discard_record`, import again.
            StoreError: the record cannot be read.
        """
        place = _record_place(self._place(content))
        try:
            return PhotoRecord.model_validate_json(_read_bytes(place, content))
        except ValidationError as error:
            raise CorruptArtefactError(f"the record {place} is damaged") from error

    def is_intact(self, content: str) -> bool:
        """Tell whether a photo's bytes still hash to its name (reads the whole file)."""
        path = self.path(content)
        with plain_store_errors(path):
            return file_sha256(path) == content

    def discard(self, content: str) -> None:
        """Take a photo out of the store (record first); a linked file itself is not touched."""
        place = self._place(content)
        with plain_store_errors(place):
            for path in (_record_place(place), _link_place(place), place):
                remove(path)

    def discard_record(self, content: str) -> None:
        """Remove a damaged record; the photo's bytes stay, to be recorded anew."""
        place = _record_place(self._place(content))
        with plain_store_errors(place):
            remove(place)

    def _linked_path(self, content: str, link_place: Path) -> Path:
        try:
            link = _Link.model_validate_json(_read_bytes(link_place, content))
        except ValidationError as error:
            raise MissingArtefactError(f"the link {link_place} is damaged; import the photo again") from error
        path = Path(link.path)
        try:
            now = _Link.to_file(path)
            # An equal file with a new time stamp (copied back, touched) is still the photo.
            same = now == link or (now.size_bytes == link.size_bytes and file_sha256(path) == content)
        except OSError as error:
            raise _linked_failure(path, f"cannot be read: {error.strerror}") from error
        if not same:
            raise _linked_failure(path, "has changed since it was imported")
        return path

    def _place(self, content: str) -> Path:
        if not is_sha256(content):
            raise StoreError(f"{content!r} is not the SHA-256 of a photo")
        return self._root / "photos" / content[:2] / content

    def _prepared_place(self, content: str) -> Path:
        place = self._place(content)
        with plain_store_errors(place.parent):
            make_folder(self._root, place.parent, self._check_same_root)
        return place


class _SourceChangedError(Exception):
    """The bytes that were copied are not the ones that were hashed."""


def _link_place(place: Path) -> Path:
    return place.with_name(f"{place.name}.link")


def _record_place(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def _read_bytes(place: Path, content: str) -> bytes:
    with plain_store_errors(place):
        try:
            return place.read_bytes()
        except FileNotFoundError as error:
            raise MissingArtefactError(f"photo {content} is not in the store") from error


def _linked_failure(path: Path, what: str) -> ItemError:
    return ItemError(
        Failure(
            name=path.name,
            reason=Reason.UNREADABLE,
            cause=f"the linked file {path} {what}.",
            cure="Put the original file back, or start a new project with the new one.",
        )
    )
